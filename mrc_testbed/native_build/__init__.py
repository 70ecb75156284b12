"""Machine code of the engine and the virtual fabric: built by mypyc from the same files, on demand.

Builds go into the cache.

    mrc compile          build once (about two minutes of CPU); the build lasts until one of the files changes
    MRC_COMPILED=0       run the Python files, whatever was built

`use()`, called by the packages that are compiled before they import anything of theirs, makes `import
hosts.engine.requestor` and the like load the build of exactly these files where there is one; else they load the Python
files, which do the same, slower. `state()` says which, and why.
"""

from mrc_testbed.native_build.cache import EngineForm, state, use

__all__ = ["EngineForm", "state", "use"]
