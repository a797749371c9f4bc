"""What the commands of trawl have in common."""

from argparse import RawDescriptionHelpFormatter
from typing import Any

from django.core.management.base import BaseCommand, CommandParser


class DetailedCommand(BaseCommand):
    """A command whose help ends with `details`, in lines as they are written."""

    details = ""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        return super().create_parser(
            prog_name, subcommand, epilog=self.details, formatter_class=RawDescriptionHelpFormatter, **kwargs
        )
