"""The web: the admin's site, its dashboard, and the pages that Django's admin has not."""
