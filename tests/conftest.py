"""The data directory of the test run is a temporary one, set before Django reads its settings."""

import os
import tempfile

os.environ["TRAWL_DATA"] = tempfile.mkdtemp(prefix="trawl-tests-")
