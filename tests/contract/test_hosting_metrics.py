"""What is counted of models and of what their engines count, over real engine processes."""

from functools import partial
from pathlib import Path

from chassis import metrics as of_process
from cohabit.models.v1 import models_pb2 as pb
from hosting import metrics
from tests.hosting_world import World, kill_engine, until, world
from tests.metrics_kit import Values, counted, values_in


async def told(w: World) -> Values:
    forget = metrics.follow(w.host)
    try:
        return values_in(await of_process.text())
    finally:
        forget()


def states(values: Values, key: str) -> list[str]:
    return [
        state
        for state in ("cold", "loading", "ready", "draining", "failed")
        if values[f'cohabit_model_state{{model="{key}",state="{state}"}}'] == 1
    ]


def is_counted(key: str, tokens: int) -> bool:
    return counted("cohabit_completion_tokens_total", model=key) == tokens


async def test_a_model_from_cold_to_gone(tmp_path: Path) -> None:
    of = '{model="m1"}'
    async with world(tmp_path, key="m1") as w:
        values = await told(w)
        assert states(values, "m1") == ["cold"]
        assert values[f"cohabit_model_instances{of}"] == 0
        instance = await w.ready("m1")
        await until(lambda: w.model("m1").instances[0].materialised_mib, "memory is told")
        async with w.generating(instance, "hold"):
            await until(lambda: w.model("m1").instances[0].running_permit_ids, "it runs")
            await until(lambda: counted("cohabit_completion_tokens_total", model="m1"), "a count")
            values = await told(w)
        assert states(values, "m1") == ["ready"]
        assert values[f"cohabit_model_running_requests{of}"] == 1
        assert values[f"cohabit_model_memory_bytes{of}"] == 100 * 1024 * 1024
        assert values[f"cohabit_model_requests_total{of}"] == 1
        assert values[f"cohabit_completion_tokens_total{of}"] == len("hold")
        assert values[f"cohabit_kv_cache_cells{of}"] == 7
        assert values['cohabit_model_loads_total{model="m1",outcome="ready"}'] == 1
        assert values[f"cohabit_model_load_seconds_count{of}"] == 1
        assert not [name for name in values if "nobody" in name]
        await w.unload("m1")
        values = await told(w)
        assert states(values, "m1") == ["cold"]
        assert f"cohabit_kv_cache_cells{of}" not in values
        assert values['cohabit_model_unloads_total{model="m1",reason="asked"}'] == 1
        assert values[f"cohabit_completion_tokens_total{of}"] == len("hold")


async def test_what_an_engine_counted_last_is_not_lost_when_it_is_asked_to_go(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, key="m2") as w:
        instance = await w.ready("m2")
        async with w.generating(instance, "twelve chars"):
            pass
        await w.unload("m2")
        assert counted("cohabit_completion_tokens_total", model="m2") == len("twelve chars")


def test_figures_that_come_late_are_left_alone() -> None:
    """They come by two ways: with a drain's answer, and by the stream of events."""
    none, older, newer = (pb.EngineFigures(counted={"completion_tokens": n}) for n in (0, 3, 5))
    assert metrics.count_figures("m7", none, newer)
    assert not metrics.count_figures("m7", newer, older)
    assert metrics.count_figures("m7", newer, newer)
    assert is_counted("m7", 5)


async def test_engines_that_die_take_nothing_back(tmp_path: Path) -> None:
    async with world(tmp_path, key="m3") as w:
        for times in (1, 2):
            instance = await w.ready("m3")
            async with w.generating(instance, "abc", f"p{times}"):
                pass
            await until(partial(is_counted, "m3", 3 * times), "what it counted is known")
            kill_engine()
            await until(lambda: not w.model("m3").instances, "it is gone")
        crashed = counted("cohabit_model_unloads_total", model="m3", reason="engine_crashed")
        assert crashed == 2
        assert states(await told(w), "m3") == ["failed"]


async def test_a_model_that_is_configured_no_more_leaves_no_series(tmp_path: Path) -> None:
    async with world(tmp_path, key="m6") as w:
        instance = await w.ready("m6")
        async with w.generating(instance, "abc"):
            pass
        await until(partial(is_counted, "m6", 3), "what it counted is known")
        await w.host.relist((), {})
        await until(lambda: not w.host.messages(), "it is gone")
        assert [name for name in await told(w) if "m6" in name] == []


async def test_loads_that_fail_or_are_given_up(tmp_path: Path) -> None:
    async with world(tmp_path, key="m4", silent=True) as w:
        call = w.load(await w.lease("m4"), "m4")
        await call.read()
        call.cancel()
        await until(
            lambda: counted("cohabit_model_loads_total", model="m4", outcome="given_up"), "given up"
        )
    async with world(tmp_path, key="m5", fail="model_failed") as w:
        call = w.load(await w.lease("m5"), "m5")
        await until(
            lambda: counted("cohabit_model_loads_total", model="m5", outcome="failed"), "failed"
        )
        call.cancel()
