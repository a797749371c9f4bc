"""The levels in which the URLs of a host are taken: the lowest number first, by discovery within one."""

SEED, REDIRECT = 0, 1
# An entry of a sitemap: one that its site marks as important (a priority of 0.8 or more), or any other.
SITEMAP_FIRST, SITEMAP = 3, 4
POPULAR = 5
_LINK, LAST = 5, 14
HELD = 15  # never taken before somebody releases it

# Pages that must link to a URL, as one worker counts them, before it is taken as POPULAR. Menus and home
# pages pass it within seconds; in the link graphs of crawls about one URL in ten ever does.
POPULAR_LINKS = 8

MAX_WEIGHT = 10  # of a seed


def by_weight(weight: int) -> int:
    """The level of a seed: first of all with the full weight, else that of a page as many links away as is missing."""
    return SEED if weight >= MAX_WEIGHT else by_depth(MAX_WEIGHT - weight)


def by_depth(depth: int) -> int:
    """The level of a link found `depth` links from a seed, and of a page that is asked for again.

    Such a page comes after those of its depth that wait. Before them it would keep a host that has a few bad pages from
    showing that it has good ones too, until it is parked.
    """
    return min(_LINK + depth, LAST)


# What people call the levels.
LEVEL_NAMES = {
    SEED: "seeds",
    REDIRECT: "targets of redirects",
    2: "level 2",
    SITEMAP_FIRST: "of sitemaps, important",
    SITEMAP: "of sitemaps",
    POPULAR: "many links lead there",
    **{level: f"{level - _LINK} links from a seed" for level in range(_LINK + 1, LAST)},
    LAST: f"{LAST - _LINK} and more links from a seed",
    HELD: "held: not fetched before somebody releases them",
}
