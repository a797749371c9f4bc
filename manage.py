#!/usr/bin/env python3
"""Django's command line, for those who know it; `./trawl` is the shorter way."""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "trawl_project.settings")
    execute_from_command_line(sys.argv)
