"""The P4 compiler: a v1model program becomes a shared object for switch/runtime, and its P4Info.

    program = compile_program(Path("p4src/srv6.p4"))
    program.library, program.p4info, program.config

source -> cpp -> tokens -> syntax tree -> names and types -> instances -> C -> gcc. Errors are P4Error, with
file:line:column and what would have worked. Results are cached by content under $MRC_CACHE_DIR.
"""

from mrc_testbed.switch.compiler.compiler import CompiledProgram, compile_program, prepare
from mrc_testbed.switch.compiler.errors import Location, P4Error, UnwrittenP4Error

__all__ = ["CompiledProgram", "Location", "P4Error", "UnwrittenP4Error", "compile_program", "prepare"]
