"""Native code is tested on CPUs that it is written for; elsewhere its tests are left out."""

from __future__ import annotations

from inference.compact.native.build import cpu_flags
from inference.compact.native.probe import NEEDED_FLAGS

collect_ignore_glob = [] if cpu_flags().issuperset(NEEDED_FLAGS) else ["test_native_*.py"]
