"""The engine and the virtual fabric as machine code: built by mypyc from the same files, on demand, into the cache.

    mrc compile          build once (about two minutes of CPU); the build lasts until one of the files changes
    MRC_COMPILED=0       run the Python files, whatever was built

Importing this package is enough: where a build of exactly these files is in the cache, `import hosts.engine.requestor`
and the like load it; else they load the Python files, which do the same, slower. `state()` says which, and why.
"""

from compiled.cache import CompileError, State, remove_builds, state, use

__all__ = ["CompileError", "State", "remove_builds", "state", "use"]

use()
