"""What this program calls itself."""

VERSION = "0.1.0"
AGENT = "trawl"  # the product token that robots.txt files know it by
