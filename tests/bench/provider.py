"""Process: the simulator on uvloop, so that the provider takes as little of the shared cores as it can.

`python -m tests.bench.provider PORT`. Before: `stack`. After: `compose.embedded.simulator`.
"""

import sys

import uvloop

from compose.embedded.simulator.__main__ import serve

if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), seed=0))
