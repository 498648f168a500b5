"""The steps of the CPU kernels as code for other processors: nothing in them is for one processor alone."""

import pytest
from llvmlite import binding, ir

from xdeconv.kernels.cpu import blocks, large, tiles
from xdeconv.kernels.cpu.kinds import Unrolled
from xdeconv.kernels.cpu.lanes import ADDRESS, WideEmitter

TRIPLES = ["aarch64-apple-darwin", "aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"]
KINDS = ["3 3 full 0 1 64 0", "3 2 full 1 1 32 0", "2 2 diagonal 0 0 32 0", "5 5 shared 0 1 64 0"]


def written(step, write):
    """A module with one function of six addresses that holds a step's instructions."""
    module = ir.Module(step)
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ADDRESS] * 6), step)
    builder = ir.IRBuilder(function.append_basic_block())
    write(builder, function.args)
    builder.ret_void()
    return str(module)


def assembly(text, triple):
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine = binding.Target.from_triple(triple).create_target_machine(opt=2)
    module = binding.parse_assembly(text)
    module.verify()
    module.triple = triple
    module.data_layout = str(machine.target_data)
    return machine.emit_assembly(module)


@pytest.mark.sampled
@pytest.mark.parametrize("triple", TRIPLES)
@pytest.mark.parametrize("code", KINDS)
def test_steps_compile(code, triple):
    kind = Unrolled.parse(code)
    for name, step in tiles.STEPS.items():
        text = written(name, lambda builder, six, step=step: step(WideEmitter(builder, kind.bits), kind, *six))
        assert "llvm.x86" not in text
        assert name in assembly(text, triple)


@pytest.mark.slow
@pytest.mark.parametrize("triple", TRIPLES)
def test_steps_of_many_dimensions_compile(triple):
    kind = blocks.Blocked(1, 1, "full", False, True, 32)
    for name, step in large.STEPS.items():
        text = written(name, lambda builder, six, step=step: step(large.Writer(builder, kind, six[-1]), *six))
        assert name in assembly(text, triple)


def test_arm_has_vector_instructions():
    kind = Unrolled.parse(KINDS[0])
    text = written("sums", lambda builder, six: tiles.sums_of_rows(WideEmitter(builder, kind.bits), kind, *six))
    assert "fmul.2d" in assembly(text, TRIPLES[0])
