"""Process group `mrc` of torch.distributed.

A group has a messenger (connections to all of its ranks) and a thread, which runs collectives in the order in which
they were called. send and recv do not wait for them.
"""

from __future__ import annotations

import functools
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)
from torch.futures import Future

from mrc_testbed.torch.collectives import TAGS, Collectives, monitored_barrier, reduction
from mrc_testbed.torch.messenger import ANY_RANK, MessageRequest, Messenger, MessengerError

NAME = "mrc"
Tensors = list[torch.Tensor]
_ATTRIBUTES = {"op": "reduceOp", "root": "rootRank"}
"""Attributes of options that are not named as the words which methods take in their place."""
KEPT_WORKS, KEPT_ELEMENTS = 1024, 64
"""Works that a group keeps, and the most elements of each.

DDP's join() hands such a work over to C++, which keeps no object of Python's alive.
"""
CALLBACK_THREADS = 64
"""Most futures of a group whose callbacks wait at one time."""


def register() -> None:
    """Register the backend, once a process."""
    if not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(NAME, _create, devices=["cpu"])


def _create(store: dist.Store, rank: int, size: int, timeout: timedelta) -> MrcProcessGroup:
    return MrcProcessGroup(store, rank, size, timeout)


def _words_for_options(options: Any, tensors: int, *words: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let a method take what those of PyTorch's own groups take.

    These are a number of lists of tensors, or bare tensors, and options or words that stand for them.
    """

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(group: MrcProcessGroup, *arguments: Any, opts: Any = None, **values: Any) -> Any:
            parts, ends = arguments[:tensors], arguments[tensors:]
            if ends and isinstance(ends[0], options):
                opts = ends[0]
            if opts is None:
                opts = options()
                for word, value in {**dict(zip(words, ends, strict=False)), **values}.items():
                    if value is not None:
                        setattr(opts, _ATTRIBUTES.get(word, word), value)
            return method(group, *parts, opts)

        return call

    return decorate


def _lists_of(*parts: Any) -> tuple[Any, ...]:
    """Return lists of tensors; where one is a bare tensor, each is a part of a list of one."""
    return tuple([part] for part in parts) if any(isinstance(part, torch.Tensor) for part in parts) else parts


class MrcProcessGroup(dist.ProcessGroup):
    """See the module. Raises MessengerError when the host's device or a rank cannot be reached."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._group_name = self._group_desc = ""
        self._timeout_s, self._monitored_barriers = timeout.total_seconds(), 0
        self._messenger = Messenger(size, rank, _Swaps(store, rank, timeout))
        self._collectives = Collectives(self._messenger)
        self._calls: queue.SimpleQueue[_CollectiveWork | None] = queue.SimpleQueue()
        self._kept_works: deque[_CollectiveWork] = deque(maxlen=KEPT_WORKS)
        self._callbacks = ThreadPoolExecutor(CALLBACK_THREADS, "mrc callbacks")
        self._messages: list[_MessageWork] = []
        """Messages of send and recv that nobody has waited for: their tensors must live."""
        self._thread = threading.Thread(target=self._run, name="mrc collectives", daemon=True)
        self._thread.start()

    @property
    def group_name(self) -> str:
        return self._group_name

    def _set_group_name(self, name: str) -> None:
        self._group_name = name

    @property
    def group_desc(self) -> str:
        return self._group_desc

    def _set_group_desc(self, text: str) -> None:
        self._group_desc = text

    def getBackendName(self) -> str:
        return NAME

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the time-out of calls from now on."""
        self._timeout_s = timeout.total_seconds()

    def _run(self) -> None:
        while (work := self._calls.get()) is not None:
            self._collectives.begin(work.timeout_s)
            work.run()

    def _call(self, name: str, function: Callable[[], object], result: Any, inputs: Tensors, opts: Any) -> Any:
        """Return the work of a function that the thread will call, and whose result is `result`.

        A profiler sees it by its name, with the shapes of `inputs`. `opts`: options, whose time-out
        holds where they have one.
        """
        own_timeout_s = opts.timeout.total_seconds()
        call = _CollectiveWork(function, result, _Record(name, inputs), self._callbacks)
        call.timeout_s = own_timeout_s if own_timeout_s > 0 else self._timeout_s
        if sum(tensor.numel() for tensor in inputs) <= KEPT_ELEMENTS:
            self._kept_works.append(call)
        self._calls.put(call)
        return call

    # ---- collectives: torch passes lists of one tensor for historical reasons --------------------------------

    @_words_for_options(AllreduceOptions, 1, "op", "timeout")
    def allreduce(self, tensors: Tensors, opts: Any) -> Any:
        (tensors,) = _lists_of(tensors)
        return self._all_reduce(tensors, opts)

    @_words_for_options(AllreduceCoalescedOptions, 1)
    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> Any:
        return self._all_reduce(tensors, opts)

    def _all_reduce(self, tensors: Tensors, opts: Any) -> Any:
        op = _op(opts)

        def run() -> None:
            for tensor in tensors:
                if tensor.layout is torch.sparse_coo and op == dist.ReduceOp.SUM:
                    self._collectives.all_reduce_sparse(tensor)
                    continue
                with _Contiguous(tensor, is_output=True) as flat:
                    self._collectives.all_reduce(flat, op)

        return self._call("all_reduce", run, tensors, tensors, opts)

    @_words_for_options(BroadcastOptions, 1, "root", "timeout")
    def broadcast(self, tensors: Tensors, opts: Any) -> Any:
        (tensors,) = _lists_of(tensors)
        tensor, root = _single(tensors, "broadcast"), self._root(opts)

        def run() -> None:
            with _Contiguous(tensor, is_output=True) as flat:
                self._collectives.broadcast(flat, root)

        return self._call("broadcast", run, tensors, tensors, opts)

    @_words_for_options(ReduceOptions, 1, "root", "op", "timeout")
    def reduce(self, tensors: Tensors, opts: Any) -> Any:
        (tensors,) = _lists_of(tensors)
        tensor, root, op = _single(tensors, "reduce"), self._root(opts), _op(opts)

        def run() -> None:
            with _Contiguous(tensor, is_output=True) as flat:
                self._collectives.reduce(flat, root, op)

        return self._call("reduce", run, tensors, tensors, opts)

    @_words_for_options(AllgatherOptions, 2, "timeout")
    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Any:
        outputs, inputs = _lists_of(outputs, inputs)
        return self._all_gather([_single(outputs, "all_gather")], [_single(inputs, "all_gather")], outputs, opts)

    @_words_for_options(AllgatherOptions, 2)
    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Any:
        """Gather several tensors: `outputs[r][i]` is the i-th of rank r."""
        return self._all_gather([list(parts) for parts in zip(*outputs, strict=True)], inputs, outputs, opts)

    @_words_for_options(AllgatherOptions, 2)
    def _allgather_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> Any:
        return self._all_gather_flat([output], [tensor], output, opts)

    @_words_for_options(AllgatherOptions, 2)
    def allgather_into_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Any:
        return self._all_gather_flat(outputs, inputs, outputs, opts)

    def _all_gather_flat(self, outputs: Tensors, inputs: Tensors, result: Any, opts: Any) -> Any:
        """Gather each tensor into the shares of one."""
        shares = [list(output.view(-1).chunk(self.size())) for output in outputs]
        return self._all_gather(shares, [tensor.reshape(-1) for tensor in inputs], result, opts)

    def _all_gather(self, outputs: list[Tensors], inputs: Tensors, result: Any, opts: Any) -> Any:
        """Gather several tensors: `outputs[i][r]` is the i-th of rank r."""
        for shares, tensor in zip(outputs, inputs, strict=True):
            _check_sizes("all_gather", shares, self.size(), tensor)

        def run() -> None:
            for shares, tensor in zip(outputs, inputs, strict=True):
                with _Contiguous(tensor) as flat, _AllContiguous(shares, is_output=True) as flats:
                    self._collectives.all_gather(flats, flat)

        return self._call("all_gather", run, result, inputs, opts)

    @_words_for_options(GatherOptions, 2, "root", "timeout")
    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Any:
        outputs, inputs = _lists_of(outputs, inputs)
        tensor, root = _single(inputs, "gather"), self._root(opts)
        tensors = outputs[0] if self.rank() == root else []
        if self.rank() == root:
            _check_sizes("gather", tensors, self.size(), tensor)

        def run() -> None:
            with _Contiguous(tensor) as flat, _AllContiguous(tensors, is_output=True) as flats:
                self._collectives.gather(flats, flat, root)

        return self._call("gather", run, outputs, inputs, opts)

    @_words_for_options(ScatterOptions, 2, "root", "timeout")
    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Any:
        outputs, inputs = _lists_of(outputs, inputs)
        tensor, root = _single(outputs, "scatter"), self._root(opts)
        tensors = inputs[0] if self.rank() == root else []
        if self.rank() == root:
            _check_sizes("scatter", tensors, self.size(), tensor)

        def run() -> None:
            with _Contiguous(tensor, is_output=True) as flat, _AllContiguous(tensors) as flats:
                self._collectives.scatter(flat, flats, root)

        return self._call("scatter", run, outputs, outputs, opts)

    @_words_for_options(ReduceScatterOptions, 2, "op", "timeout")
    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Any:
        outputs, inputs = _lists_of(outputs, inputs)
        tensors = _single(inputs, "reduce_scatter")
        return self._reduce_scatter([_single(outputs, "reduce_scatter")], [tensors], outputs, opts)

    @_words_for_options(ReduceScatterOptions, 2)
    def _reduce_scatter_base(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> Any:
        return self._reduce_scatter_flat([output], [tensor], output, opts)

    @_words_for_options(ReduceScatterOptions, 2)
    def reduce_scatter_tensor_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Any:
        return self._reduce_scatter_flat(outputs, inputs, outputs, opts)

    def _reduce_scatter_flat(self, outputs: Tensors, inputs: Tensors, result: Any, opts: Any) -> Any:
        """Reduce the shares of each tensor."""
        shares = [list(tensor.contiguous().view(-1).chunk(self.size())) for tensor in inputs]
        return self._reduce_scatter([output.view(-1) for output in outputs], shares, result, opts)

    def _reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], result: Any, opts: Any) -> Any:
        op = _op(opts)
        for output, shares in zip(outputs, inputs, strict=True):
            _check_sizes("reduce_scatter", shares, self.size(), output)

        def run() -> None:
            for output, shares in zip(outputs, inputs, strict=True):
                with _Contiguous(output, is_output=True) as flat, _AllContiguous(shares) as flats:
                    self._collectives.reduce_scatter(flat, flats, op)

        return self._call("reduce_scatter", run, result, [tensor for shares in inputs for tensor in shares], opts)

    @_words_for_options(AllToAllOptions, 2, "timeout")
    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Any:
        if len(outputs) != self.size() or len(inputs) != self.size():
            raise ValueError(f"mrc: all_to_all of {len(inputs)} to {len(outputs)} tensors for {self.size()} ranks")

        def run() -> None:
            with _AllContiguous(outputs, is_output=True) as flats, _AllContiguous(inputs) as input_flats:
                self._collectives.all_to_all(flats, input_flats)

        return self._call("all_to_all", run, outputs, inputs, opts)

    @_words_for_options(AllToAllOptions, 4, "timeout")
    def alltoall_base(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_sizes: list[int],
        input_sizes: list[int],
        opts: Any,
    ) -> Any:
        def run() -> None:
            with _Contiguous(output, is_output=True) as flat, _Contiguous(tensor) as input_flat:
                self._collectives.all_to_all(
                    _split(flat, output_sizes, self.size()), _split(input_flat, input_sizes, self.size())
                )

        return self._call("all_to_all", run, output, [tensor], opts)

    @_words_for_options(BarrierOptions, 0, "timeout")
    def barrier(self, opts: Any) -> Any:
        return self._call("barrier", self._collectives.barrier, [], [], opts)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        seconds = self._timeout_s if timeout is None else timeout.total_seconds()
        self._monitored_barriers += 1
        monitored_barrier(self._messenger, self._monitored_barriers, seconds, wait_all_ranks)

    # Names of PyTorch 2.13 and later, beside those above.
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base

    # ---- messages -------------------------------------------------------------------------------------------

    def send(self, tensors: Tensors, rank: int, tag: int = 0) -> Any:
        tensor = _single(tensors, "send")
        _check_dense(tensor)
        self._check_message(rank, tag)
        flat, record = _in_memory(tensor), _Record("send", tensors)
        return self._message(self._messenger.send(rank, tag, flat.data_ptr(), flat.nbytes), flat, None, record)

    def recv(self, tensors: Tensors, rank: int, tag: int = 0) -> Any:
        tensor = _single(tensors, "recv")
        _check_dense(tensor)
        if rank != ANY_RANK:
            self._check_message(rank, tag)
        is_in_memory = tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
        flat = tensor if is_in_memory else torch.empty(tensor.shape, dtype=tensor.dtype)
        record = _Record("recvAnySource" if rank == ANY_RANK else "recv", tensors)
        request = self._messenger.receive(rank, tag, flat.data_ptr(), flat.nbytes)
        return self._message(request, flat, None if flat is tensor else tensor, record)

    def recv_anysource(self, tensors: Tensors, tag: int = 0) -> Any:
        return self.recv(tensors, ANY_RANK, tag)

    def _check_message(self, rank: int, tag: int) -> None:
        """Check the other rank of a message, and its tag. Raises ValueError."""
        if rank == self.rank():
            raise ValueError(f"mrc: rank {rank} sends a message to itself: a fabric carries none from a host to itself")
        self._check_rank(rank)
        if not 0 <= tag < TAGS:
            raise ValueError(f"mrc: the tag {tag} is not one of 0 to {TAGS - 1}")

    def _check_rank(self, rank: int) -> None:
        if not 0 <= rank < self.size():
            raise ValueError(f"mrc: the group has ranks 0 to {self.size() - 1}, not {rank}")

    def _root(self, opts: Any) -> int:
        """Return the root of a collective. Raises ValueError for a rank there is not."""
        root = int(opts.rootRank)
        self._check_rank(root)
        return root

    def _message(
        self, request: MessageRequest, flat: torch.Tensor, target: torch.Tensor | None, record: _Record
    ) -> _MessageWork:
        self._messages = [work for work in self._messages if not work.is_completed()]
        work = _MessageWork(request, flat, target, self._timeout_s, record)
        self._messages.append(work)
        return work

    # ---- the end --------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """End the thread, let the last writes arrive, and free the host's QPs. Idempotent."""
        self._calls.put(None)
        self._thread.join()
        self._callbacks.shutdown(wait=False)
        for work in self._messages:
            work.abandon()
        self._messages.clear()
        self._messenger.close()

    def abort(self) -> None:
        """End at once: collectives and messages that wait raise."""
        self._messenger.abort()
        self.shutdown()


class _Swaps:
    """Exchange of bytes with other ranks, through the store of the group."""

    def __init__(self, store: dist.Store, rank: int, timeout: timedelta) -> None:
        self._store, self._rank, self._timeout = store, rank, timeout
        self._counts: dict[int, int] = {}

    def __call__(self, peer: int, hello: bytes) -> bytes:
        count = self._counts[peer] = self._counts.get(peer, 0) + 1
        self._store.set(f"mrc {self._rank} to {peer}, {count}", hello)
        key = f"mrc {peer} to {self._rank}, {count}"
        self._store.wait([key], self._timeout)  # its own time-out is its user's
        return bytes(self._store.get(key))


class _Record:
    """Event of a profiler, where it records: from here until the end of a collective or a message."""

    def __init__(self, name: str, tensors: Tensors) -> None:
        self._event = None
        if torch.autograd._profiler_enabled():
            self._event = torch.autograd._record_function_with_args_enter(f"{NAME}:{name}", *tensors)

    def end(self) -> None:
        """End the event. Profilers take it for asynchronous when another thread ends it than began it."""
        if self._event is not None:
            torch.autograd._record_function_with_args_exit(self._event)
            self._event = None

    def end_in_thread(self) -> None:
        """End the event in a thread for it."""
        if self._event is not None:
            thread = threading.Thread(target=self.end)
            thread.start()
            thread.join()


class _CollectiveWork(dist.Work):
    """Collective that waits for its turn in the group's thread.

    What a program has hung onto its future runs in a thread of `callbacks`, as it may wait for other collectives.
    """

    timeout_s = 0.0

    def __init__(
        self, function: Callable[[], object], result: Any, record: _Record, callbacks: ThreadPoolExecutor
    ) -> None:
        super().__init__()
        self._function, self._result, self._record, self._callbacks = function, result, record, callbacks
        self._error: BaseException | None = None
        self._end, self._lock = threading.Event(), threading.Lock()
        self._signal: Future[Any] | None = None

    def run(self) -> None:
        try:
            self._function()
        except BaseException as error:  # whoever waits must hear of it
            self._error = error
        self._record.end()
        with self._lock:
            self._end.set()
            signal = self._signal
        if signal is not None:
            self._callbacks.submit(signal.set_result, None)

    def wait(self, timeout: timedelta | None = None) -> bool:
        if not self._end.wait(timeout.total_seconds() if timeout else None):
            raise MessengerError(f"not done within the timeout of {timeout}")
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        return self._end.is_set()

    def is_success(self) -> bool:
        return self._end.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> Any:
        return self._result

    def get_future(self) -> Future[Any]:
        with self._lock:
            signal, is_ended = self._signal, self._end.is_set()
            if signal is None:
                signal = self._signal = Future()
                if is_ended:
                    signal.set_result(None)
        # Only an error raised in a callback reaches the C++ of DDP.
        return signal.then(lambda _: self.wait() and self._result)


class _MessageWork(dist.Work):
    """Work of one send or recv."""

    def __init__(
        self,
        request: MessageRequest,
        flat: torch.Tensor,
        target: torch.Tensor | None,
        timeout_s: float,
        record: _Record,
    ) -> None:
        super().__init__()
        self._request, self._flat, self._target, self._timeout_s = request, flat, target, timeout_s
        self._record = record
        self._is_over = False
        self._source = ANY_RANK

    def wait(self, timeout: timedelta | None = None) -> bool:
        if not self._is_over:
            seconds = timeout.total_seconds() if timeout else 0.0
            self._is_over = True
            try:
                self._source = self._request.wait(seconds or self._timeout_s)
            finally:
                self._record.end_in_thread()
            if self._target is not None:
                self._target.copy_(self._flat)
        return True

    def is_completed(self) -> bool:
        return self._is_over or self._request.is_done

    def _source_rank(self) -> int:
        return self._source

    def abandon(self) -> None:
        """Give the tensor up, of a message that nobody has waited for."""
        if not self._is_over:
            self._is_over = True
            self._request.abandon()


def _in_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose bytes are its values in order, a copy where its own are not."""
    return tensor.contiguous().resolve_conj().resolve_neg()


class _Contiguous:
    """A tensor as contiguous memory; an output is written back at the end."""

    def __init__(self, tensor: torch.Tensor, *, is_output: bool = False) -> None:
        _check_dense(tensor)
        self._tensor, self._is_output = tensor.detach(), is_output

    def __enter__(self) -> torch.Tensor:
        self._flat = _in_memory(self._tensor)
        return self._flat

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._is_output and error is None and self._flat is not self._tensor:
            self._tensor.copy_(self._flat)


class _AllContiguous:
    """Several tensors as contiguous memory."""

    def __init__(self, tensors: Sequence[torch.Tensor], *, is_output: bool = False) -> None:
        self._parts = [_Contiguous(tensor, is_output=is_output) for tensor in tensors]

    def __enter__(self) -> Tensors:
        return [part.__enter__() for part in self._parts]

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        for part in self._parts:
            part.__exit__(kind, error, trace)


def _op(opts: Any) -> Any:
    """Return the reduction of options. Raises ValueError for one there is not."""
    reduction(opts.reduceOp)
    return opts.reduceOp


def _single(tensors: Sequence[Any], collective: str) -> Any:
    if len(tensors) != 1:
        raise ValueError(f"mrc: {collective} of {len(tensors)} tensors: a rank has one")
    return tensors[0]


def _check_dense(tensor: torch.Tensor) -> None:
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        raise ValueError(f"mrc takes dense tensors on the CPU alone, not {tensor.layout} on {tensor.device}")


def _check_sizes(collective: str, tensors: Sequence[torch.Tensor], ranks: int, tensor: torch.Tensor) -> None:
    """Check that there is a tensor a rank, each as large as `tensor`. Raises ValueError."""
    if len(tensors) != ranks:
        raise ValueError(f"mrc: {collective} with {len(tensors)} tensors for {ranks} ranks")
    for rank, part in enumerate(tensors):
        if part.numel() != tensor.numel() or part.dtype != tensor.dtype:
            raise ValueError(
                f"mrc: {collective}: the tensor of rank {rank} has {part.numel()} elements of {part.dtype}, "
                f"must have {tensor.numel()} of {tensor.dtype}"
            )


def _split(tensor: torch.Tensor, sizes: list[int], ranks: int) -> Tensors:
    """Split along the first dimension: by sizes, or evenly without any."""
    if not sizes:
        if tensor.size(0) % ranks:
            raise ValueError(f"mrc: all_to_all: {tensor.size(0)} rows do not divide by {ranks} ranks")
        sizes = [tensor.size(0) // ranks] * ranks
    return list(tensor.split(sizes))
