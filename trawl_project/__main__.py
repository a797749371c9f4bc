"""Makes `python -m trawl_project` the trawl command."""

from trawl_project.cli import main

if __name__ == "__main__":
    main()
