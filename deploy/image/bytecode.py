"""`bytecode.py MODULE...`: compiles what importing the modules imports, and nothing else of the environment.

The bytecode is never checked against its source, and a read-only container never has to write any.
"""

import importlib
import py_compile
import sys

import numba

sys.dont_write_bytecode = True
for name in sys.argv[1:]:
    importlib.import_module(name)
numba.njit(lambda: 0)()  # numba imports most of itself at the first call
for module in list(sys.modules.values()):
    source = getattr(module, "__file__", None) or ""
    if source.startswith(sys.prefix) and source.endswith(".py"):
        py_compile.compile(
            source, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )
