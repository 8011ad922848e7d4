"""What the adapter finds missing in a vLLM, and how it says so."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import coresched_vllm
import pytest
from coresched_vllm import plugin
from coresched_vllm.arguments import check
from coresched_vllm.compatibility import check_engine, is_tested, missing, vllm_version
from coresched_vllm.names import is_ours, policy_name

from coresched.errors import InputError


class RequestQueue(ABC):
    @abstractmethod
    def add_request(self, request: Any) -> None: ...
    @abstractmethod
    def pop_request(self) -> Any: ...
    @abstractmethod
    def peek_request(self) -> Any: ...
    @abstractmethod
    def prepend_request(self, request: Any) -> None: ...
    @abstractmethod
    def prepend_requests(self, requests: Any) -> None: ...
    @abstractmethod
    def remove_request(self, request: Any) -> None: ...
    @abstractmethod
    def remove_requests(self, requests: Any) -> None: ...
    @abstractmethod
    def __len__(self) -> int: ...


class Scheduler:
    def __init__(self, vllm_config: Any, kv_cache_config: Any, block_size: int) -> None:
        self.waiting, self.running, self.kv_cache_manager, self.finished_req_ids = [1], [2], 3, {4}

    def schedule(self, throttle_prefills: bool = False) -> None: ...
    def reset_prefix_cache(self, reset_running_requests: bool = False) -> None: ...


class KVCacheCoordinator:
    def __init__(self) -> None:
        self.single_type_managers = ()

    def find_longest_cache_hit(self, block_hashes: Any, max_cache_hit_length: int) -> None: ...


class KVCacheManager:
    def __init__(self) -> None:
        self.coordinator, self.block_pool, self.enable_caching = 1, 2, True


class Manager:
    def __init__(self) -> None:
        self.block_size, self.block_pool, self.kv_cache_spec = 1, 2, 3
        self.req_to_blocks, self.num_cached_block = 4, 5


class MambaManager:
    def __init__(self) -> None:
        self.mamba_cache_mode = "align"


class BlockPool:
    def __init__(self) -> None:
        self.num_gpu_blocks, self.hash_block_size, self.free_block_queue = 1, 2, 3

    def get_new_blocks(self, num_blocks: int) -> None: ...
    def get_cached_block(self, block_hash: Any, kv_cache_group_ids: Any) -> None: ...
    def touch(self, blocks: Any) -> None: ...
    def free_blocks(self, ordered_blocks: Any) -> None: ...
    def evict_blocks(self, block_ids: Any) -> None: ...
    def get_num_free_blocks(self) -> None: ...


class FreeQueue:
    def __init__(self) -> None:
        self.fake_free_list_head = None

    def remove(self, block: Any) -> None: ...
    def prepend_n(self, blocks: Any) -> None: ...


class Block:
    block_id = ref_cnt = 0
    is_null = False
    block_hash = block_hash_num_tokens = next_free_block = None


def get_block_hash(key: Any) -> None: ...


class Request:
    def __init__(self) -> None:
        self.request_id, self.session_id, self.sampling_params, self.status = 1, 2, 3, 4
        self.block_hashes, self.skip_reading_prefix_cache = 5, 6
        self.num_preemptions = 0
        self.num_prompt_tokens, self.num_computed_tokens, self.shared_prefix_boundary = 7, 8, 9


Contents = dict[str, dict[str, Any]]


@pytest.fixture
def contents() -> Contents:
    return {
        "vllm": {"__version__": "0.32.0"},
        "vllm.v1.core.sched.scheduler": {"Scheduler": Scheduler},
        "vllm.v1.core.sched.async_scheduler": {"AsyncScheduler": Scheduler},
        "vllm.v1.core.sched.request_queue": {"RequestQueue": RequestQueue},
        "vllm.v1.core.kv_cache_coordinator": {"KVCacheCoordinator": KVCacheCoordinator},
        "vllm.v1.core.kv_cache_manager": {"KVCacheManager": KVCacheManager},
        "vllm.v1.core.single_type_kv_cache_manager": {
            "SingleTypeKVCacheManager": Manager,
            "MambaManager": MambaManager,
        },
        "vllm.v1.core.block_pool": {"BlockPool": BlockPool},
        "vllm.v1.core.kv_cache_utils": {
            "FreeKVCacheBlockQueue": FreeQueue,
            "KVCacheBlock": Block,
            "get_block_hash": get_block_hash,
        },
        "vllm.v1.request": {"Request": Request},
    }


@pytest.fixture
def installed(contents: Contents, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def install() -> None:
        for path, names in contents.items():
            parts = path.split(".")
            for depth in range(1, len(parts) + 1):
                name = ".".join(parts[:depth])
                if name not in sys.modules or not hasattr(sys.modules[name], "made_here"):
                    module = ModuleType(name)
                    module.__path__ = []
                    module.made_here = True  # type: ignore[attr-defined]
                    monkeypatch.setitem(sys.modules, name, module)
                    if depth > 1:
                        setattr(sys.modules[".".join(parts[: depth - 1])], parts[depth - 1], module)
            vars(sys.modules[path]).update(names)

    return install


def test_a_vllm_with_all_places_lacks_nothing(installed: Callable[[], None]) -> None:
    installed()
    assert missing() == []
    assert vllm_version() == "0.32.0"
    check_engine()


class OtherQueue(RequestQueue):
    @abstractmethod
    def drain(self) -> None: ...


class OtherPool(BlockPool):
    def touch(self, block: Any) -> None: ...  # type: ignore[override]


class OtherCoordinator:
    def find_longest_cache_hit(self, request: Any) -> None: ...


@pytest.mark.parametrize(
    ("path", "name", "value", "phrase"),
    [
        ("vllm.v1.core.sched.scheduler", "Scheduler", None, "Scheduler.schedule does not exist"),
        ("vllm.v1.core.sched.scheduler", "Scheduler", object, "Scheduler has no waiting"),
        ("vllm.v1.core.sched.request_queue", "RequestQueue", OtherQueue, "asks for drain, which is new"),
        ("vllm.v1.request", "Request", object, "Request has no session_id"),
        (
            "vllm.v1.core.block_pool",
            "BlockPool",
            OtherPool,
            "touch takes (self, block), not (self, blocks, ...)",
        ),
        ("vllm.v1.core.kv_cache_utils", "KVCacheBlock", object, "KVCacheBlock has no ref_cnt"),
        (
            "vllm.v1.core.kv_cache_coordinator",
            "KVCacheCoordinator",
            OtherCoordinator,
            "takes (self, request), not (self, block_hashes, max_cache_hit_length, ...)",
        ),
    ],
)
def test_what_is_missing_is_named_where_the_scheduler_is_loaded(
    contents: Contents, installed: Callable[[], None], path: str, name: str, value: Any, phrase: str
) -> None:
    contents[path][name] = value
    installed()
    for scheduler in ("RoutingPrefix", "RoutingResidency"):
        with pytest.raises(InputError, match=r"^coresched_vllm cannot schedule vLLM 0\.32\.0: ") as refused:
            getattr(coresched_vllm, scheduler)
        assert phrase in str(refused.value)


def test_tested_are_the_releases_of_a_minor_version() -> None:
    assert is_tested("0.32.0")
    assert is_tested("0.32.1+cpu")
    assert not is_tested("0.3.2")
    assert not is_tested("of unknown version")


@pytest.mark.parametrize(
    ("scheduler_cls", "ours"),
    [
        ("coresched_vllm.RoutingPrefix", True),
        ("coresched_vllm.scheduler.RoutingPrefixScheduler", True),
        ("vllm.v1.core.sched.scheduler.Scheduler", False),
        ("coresched_vllm_other.Scheduler", False),
        (Scheduler, False),
        (None, False),
    ],
)
def test_which_schedulers_are_ours(scheduler_cls: Any, ours: bool) -> None:
    assert is_ours(scheduler_cls) == ours


def test_the_plugin_checks_ours_once_and_leaves_other_schedulers_alone(
    contents: Contents, installed: Callable[[], None]
) -> None:
    class EngineArgs:
        scheduler_cls: Any = None
        policy = "priority"

        def create_engine_config(self, usage_context: Any = None) -> Any:
            scheduler = SimpleNamespace(scheduler_cls=self.scheduler_cls, policy=self.policy)
            return SimpleNamespace(scheduler_config=scheduler, additional_config={}, made=usage_context)

    contents["vllm.engine.arg_utils"] = {"EngineArgs": EngineArgs}
    installed()
    plugin.register()
    hooked = EngineArgs.create_engine_config
    plugin.register()
    assert EngineArgs.create_engine_config is hooked
    arguments = EngineArgs()
    assert arguments.create_engine_config(usage_context="here").made == "here"
    arguments.scheduler_cls = "coresched_vllm.RoutingPrefix"
    with pytest.raises(InputError, match=r"^--scheduler-cls coresched_vllm\.RoutingPrefix orders requests"):
        arguments.create_engine_config()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        (
            {"policy": "priority"},
            "orders requests by their trajectories, and --scheduling-policy pri",
        ),
        (
            {"cached": False},
            "orders requests by what the prefix cache holds, and there is none",
        ),
        ({"connector": object()}, "looks at the engine's own blocks only, and --kv-transfer-config keeps"),
        ({"section": {"one_state_per_trajectory": 1}}, None),
    ],
)
def test_what_routing_residency_cannot_work_with(
    installed: Callable[[], None], changes: dict[str, Any], reason: str | None
) -> None:
    installed()
    given = {"policy": "fcfs", "cached": True, "connector": None, "section": {"label_capacity": 9}} | changes
    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(
            scheduler_cls="coresched_vllm.RoutingResidency", policy=given["policy"]
        ),
        cache_config=SimpleNamespace(enable_prefix_caching=given["cached"]),
        kv_transfer_config=given["connector"],
        additional_config={"coresched": given["section"]},
    )
    if not changes:
        check(config)
        return
    with pytest.raises(InputError) as refused:
        check(config)
    name = "--scheduler-cls coresched_vllm.RoutingResidency "
    expected = f"{name}{reason}" if reason else "one_state_per_trajectory in additional_config"
    assert str(refused.value).startswith(expected)


@pytest.mark.parametrize(
    ("scheduler_cls", "name"),
    [
        ("coresched_vllm.RoutingPrefix", "coresched_vllm.RoutingPrefix"),
        ("coresched_vllm.scheduler.RoutingResidencyAsyncScheduler", "coresched_vllm.RoutingResidency"),
        (type("RoutingResidencyScheduler", (), {}), "coresched_vllm.RoutingResidency"),
        (type("RoutingPrefixAsyncScheduler", (), {}), "coresched_vllm.RoutingPrefix"),
    ],
)
def test_the_policy_of_a_class(scheduler_cls: Any, name: str) -> None:
    assert policy_name(scheduler_cls) == name


def test_a_process_that_reads_no_arguments_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "vllm.engine.arg_utils", raising=False)
    plugin.register()


def test_an_unknown_name_of_the_package_is_an_ordinary_error() -> None:
    with pytest.raises(
        AttributeError, match=r"has no attribute 'Routing'; --scheduler-cls takes coresched_vllm\."
    ):
        _ = coresched_vllm.Routing
