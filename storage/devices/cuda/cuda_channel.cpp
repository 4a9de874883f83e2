#include "storage/devices/cuda/cuda_channel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "storage/devices/cuda/cuda_error.hpp"
#include "storage/devices/gpu/recent_writers.hpp"
#include "storage/log_line.hpp"
#include "storage/store.hpp"

namespace gpunbd::storage::cuda {

namespace {

constexpr std::size_t line = 64;                  // bytes: words of their own in the CPU's cache
constexpr std::uint32_t group_bytes = 64 << 10;   // an engine's group is closed when it has so many
constexpr std::uint32_t batch_bytes = 256 << 10;  // the same, where a batch is made of it
constexpr std::uint32_t polls_per_clock = 32;     // polls between looks at the clock
constexpr auto look_every = std::chrono::milliseconds(1);
constexpr std::uint32_t many_writers = 8;       // threads
constexpr std::size_t scratch_bytes = 8 << 10;  // counters below, a place to warm up above
constexpr std::size_t scratch_counter_bytes = 256;

const char* name_of(Copy::Kind kind) {
    switch (kind) {
        case Copy::Kind::read:
            return "read";
        case Copy::Kind::write:
            return "write";
        case Copy::Kind::zero:
            return "zeroing";
    }
    return "copy";
}

Direction direction_of(Copy::Kind kind) {
    switch (kind) {
        case Copy::Kind::write:
            return Direction::write;
        case Copy::Kind::zero:
            return Direction::zero;
        case Copy::Kind::read:
            break;
    }
    return Direction::read;
}

std::string to_text(const Copy& copy) {
    return fmt::format("a {} of {} bytes at device address {:#x}", name_of(copy.kind), copy.length,
                       copy.address);
}

std::uint32_t units_of(const Copy& copy) {
    return (copy.length + copy_unit_bytes - 1) / copy_unit_bytes;
}

// What a GPU fetches while it lies changed in a CPU's own cache has to be searched for there. When
// many workers write at once, to several GPUs above all, the machine's copying slows down over that
// searching to less than half; with few, handing the memory over costs more than it saves. Measured
// on two H200s, server/PERFORMANCE.md.
bool many_write() { return note_writer(std::chrono::steady_clock::now()) >= many_writers; }

std::byte* device_pointer(const Copy& copy) { return reinterpret_cast<std::byte*>(copy.address); }

// Earlier streaming loads may have left lines of the mapping in the CPU's fill buffers: none of
// them may serve a load from here on.
void forget_loaded_lines() {
#if defined(__x86_64__)
    _mm_mfence();
#else
    store_fence();
#endif
}

// One of the device's places for persistent kernels, if there is one left.
bool take_place(std::atomic<std::int32_t>& places) {
    if (places.fetch_sub(1) > 0) return true;
    places.fetch_add(1);
    return false;
}

CUresult memcpy_batch(DeviceState::MemcpyBatch call, CUdeviceptr* to, CUdeviceptr* from,
                      std::size_t* lengths, std::size_t count, cudaStream_t stream) {
#if CUDART_VERSION >= 12080
    CUmemcpyAttributes attributes{};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    std::size_t first = 0;
    std::size_t failed = 0;
    return call(to, from, lengths, count, &attributes, &first, 1, &failed, stream);
#else
    static_cast<void>(call), static_cast<void>(to), static_cast<void>(from);
    static_cast<void>(lengths), static_cast<void>(count), static_cast<void>(stream);
    return CUDA_ERROR_NOT_SUPPORTED;
#endif
}

std::uint32_t* word(const PinnedMemory& words, std::size_t number) {
    return reinterpret_cast<std::uint32_t*>(words.get() + number * line);
}

}  // namespace

void CudaChannel::Waiting::push(Copy& copy) {
    copies.push(copy);
    ++count;
    bytes += copy.length;
}

Copy* CudaChannel::Waiting::pop() {
    Copy* const copy = copies.pop();
    if (copy == nullptr) return nullptr;
    --count;
    bytes -= copy->length;
    return copy;
}

CudaChannel::Engine CudaChannel::engine_of(Copy::Kind kind) {
    switch (kind) {
        case Copy::Kind::write:
            return to_device;
        case Copy::Kind::zero:
            return zeroing;
        case Copy::Kind::read:
            break;
    }
    return to_host;
}

CudaChannel::CudaChannel(const ChannelOptions& options, DeviceState& state, CompetitionWatch& watch,
                         const Policy& policy, MailboxMemory mailbox)
    : Channel(options),
      state_(state),
      watch_(watch),
      has_engine_batch_(state.memcpy_batch != nullptr),
      staging_(state.ordinal, 2 * options.pinned, state.numa_node),
      words_(state.ordinal, (kernel_streams + engines) * line, state.numa_node),
      scratch_(state.ordinal, scratch_bytes),
      has_persistent_kernel_(take_place(state.persistent_kernel_places)),
      persistent_(state.ordinal, state.numa_node, state.persistent_kernel_blocks,
                  std::move(mailbox)),
      kernels_{StreamCounter(state.ordinal, Stream::Priority::high, word(words_, 0)),
               StreamCounter(state.ordinal, Stream::Priority::high, word(words_, 1)),
               StreamCounter(state.ordinal, Stream::Priority::high, word(words_, 2)),
               StreamCounter(state.ordinal, Stream::Priority::high, word(words_, 3))},
      engines_{StreamCounter(state.ordinal, Stream::Priority::normal, word(words_, 4)),
               StreamCounter(state.ordinal, Stream::Priority::normal, word(words_, 5)),
               StreamCounter(state.ordinal, Stream::Priority::normal, word(words_, 6))} {
    set_policy(policy);
    warm_up();
    read_staging_.adopt(staging_.get(), options.pinned);
    write_staging_.adopt(staging_.get() + options.pinned, options.pinned);
}

CudaChannel::~CudaChannel() {
    std::uint32_t groups = 0;
    for (const StreamCounter& engine : engines_) groups += engine.in_flight();
    state_.engine_copies.fetch_sub(static_cast<std::int32_t>(groups), std::memory_order_relaxed);
    if (has_persistent_kernel_) state_.persistent_kernel_places.fetch_add(1);
    // The streams are destroyed before the memory that their copies touch, and wait for them.
}

void CudaChannel::set_policy(const Policy& policy) {
    policy_ = policy;
    max_for_kernel_ = policy.max_for_kernel();
}

// The first use of a path loads code and allocates; nothing on the way of a request may.
void CudaChannel::warm_up() {
    std::byte* const device = scratch_.get() + scratch_bytes / 2;
    CopyQueue none;
    batch_.units.fill({.from = device, .to = staging_.get(), .length = 16});
    const bool kernels = state_.competition.use() != GpuUse::copy_engines;
    for (StreamCounter& stream : kernels_) {
        if (!kernels) break;
        for (const std::uint32_t count : {1U, 32U, max_copy_units}) {
            batch_.stream = &stream;
            batch_.count = count;
            launch_batch();
            check(cudaStreamSynchronize(stream.stream()), "kernels do not work");
            stream.take_ended(none);
        }
    }
    if (has_persistent_kernel_) check(persistent_.warm_up(), "the persistent kernel does not work");
    for (const Copy::Kind kind : {Copy::Kind::read, Copy::Kind::write, Copy::Kind::zero}) {
        std::array<Copy, 2> copies;
        for (Copy& copy : copies) {
            copy.kind = kind;
            copy.length = 16;
            copy.address = reinterpret_cast<std::uintptr_t>(device);
            copy.staging = staging_.get();
        }
        const Engine engine = engine_of(kind);
        StreamCounter& stream = engines_[engine];
        add_to_engine(copies[0]);
        close_group(engine);
        if (has_engine_batch_) {
            add_to_engine_batch(copies[1]);
            close_group(engine);
            has_engine_batch_ = copies[1].status == Status::ok;
        }
        check(cudaStreamSynchronize(stream.stream()), "the copy engines do not work");
        CopyQueue ended;
        while (stream.take_ended(ended)) {
            state_.engine_copies.fetch_sub(1, std::memory_order_relaxed);
        }
    }
}

// Why a read that is submitted after a fenced store sees it, whichever path it takes.
// The fence drains the CPU's write-combining buffers: the stores are posted writes on their way to
// the GPU. What starts a copy or a kernel reaches the GPU behind them: a doorbell is a posted write
// itself, and posted writes of one root port do not overtake each other; a command that the GPU
// fetches from host memory comes in a completion, which does not overtake posted writes either
// (PCIe base specification, ordering rules). At the GPU, writes through the window land in the L2
// cache, which the copy engines read; kernels read past the caches of their multiprocessor. A
// streaming load is a read request, which pushes posted writes ahead of it; lines loaded before are
// forgotten first. For a read on another worker the store's fence comes before the answer to its
// client, that before the client's read, and that before this worker's doorbell. The persistent
// kernel is told by a store, behind a fence, through the same window or in host memory: that a
// running kernel sees writes from the bus in their order is a promise that the GPU makes or not,
// and without it a device with mapped slabs has no persistent kernels
// (CudaDevice::allow_persistent_kernel). The other way round, a copy to the device is told as ended
// only after its bytes are in that same L2, so loads and stores through the window that come later
// find them there.
bool CudaChannel::receives_into(const Slab& slab, std::uint32_t length) const {
    return slab.cpu != nullptr && policy_.choose(Direction::write, Load::alone, length,
                                                 {.mapping = true}) == PathKind::mapping;
}

void CudaChannel::progress(CopyQueue& queued) {
    if (!state_.failed()) {
        collect();
        sort(queued);
        submit(small_reads_);
        submit(small_writes_);
        submit(long_);
        look_around();
    }
    if (state_.failed()) fail_everything(queued);
}

void CudaChannel::sort(CopyQueue& queued) {
    while (Copy* copy = queued.pop()) {
        copy->status = Status::ok;
        Waiting& waiting = copy->length > max_for_kernel_   ? long_
                           : copy->kind == Copy::Kind::read ? small_reads_
                                                            : small_writes_;
        waiting.push(*copy);
    }
}

Load CudaChannel::load_of(const Waiting& waiting) const {
    if (waiting.count > 1) return Load::several;
    const bool idle = kernels_idle() && persistent_.idle() &&
                      state_.engine_copies.load(std::memory_order_relaxed) == 0;
    return idle ? Load::alone : Load::busy;
}

bool CudaChannel::kernels_idle() const {
    return std::all_of(kernels_.begin(), kernels_.end(),
                       [](const StreamCounter& stream) { return stream.idle(); });
}

PathKind CudaChannel::path_of(const Copy& copy, Load load, std::uint64_t waiting_bytes) {
    const Direction direction = direction_of(copy.kind);
    Policy::Means means{
        .mapping = copy.cpu != nullptr,
        .kernels = state_.competition.kernels_allowed(),
        .persistent_kernel = has_persistent_kernel_ && PersistentCopier::can_take(copy),
        .engine_batch = has_engine_batch_ && copy.length <= longest_in_batch()};
    // What the CPU copies itself costs time by the sum of the bytes.
    const auto sum =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(waiting_bytes, Policy::any_size - 1));
    PathKind path = policy_.choose(direction, load, sum, means);
    if (path == PathKind::streaming_load || path == PathKind::mapping) return path;
    means.mapping = false;
    path = policy_.choose(direction, load, copy.length, means);
    if (path == PathKind::persistent_kernel && load == Load::alone && !persistent_.running()) {
        // To launch it takes longer than this copy takes otherwise. It is launched for the next, at
        // the end of this one, if the client is quick enough to come while it lingers.
        wakes_persistent_kernel_ =
            std::chrono::steady_clock::now() - slept_until_ < PersistentCopier::linger;
        slept_through_ = true;
        means.persistent_kernel = false;
        path = policy_.choose(direction, load, copy.length, means);
    }
    return path == PathKind::kernel && units_of(copy) > max_copy_units ? PathKind::copy_engine
                                                                       : path;
}

bool CudaChannel::has_place(const Copy& copy, PathKind path) {
    switch (path) {
        case PathKind::mapping:
        case PathKind::streaming_load:
            return true;
        case PathKind::persistent_kernel:
            return persistent_.has_room(copy);
        case PathKind::kernel:
            return make_place_in_batch(copy);
        case PathKind::copy_engine:
        case PathKind::engine_batch:
            return !engines_[engine_of(copy.kind)].full();
    }
    return false;
}

void CudaChannel::submit(Waiting& waiting) {
    if (waiting.count == 0) return;
    const Load load = load_of(waiting);
    std::optional<bool> hands_over;  // asked once, if at all
    while (Copy* copy = waiting.copies.front()) {
        const PathKind path = path_of(*copy, load, waiting.bytes);
        if (!has_place(*copy, path)) break;
        waiting.pop();
        if (copy->kind == Copy::Kind::write && path != PathKind::mapping) {
            if (!hands_over) hands_over = many_write();
            if (*hands_over) demote(copy->staging, copy->length);
        }
        switch (path) {
            case PathKind::mapping:
            case PathKind::streaming_load:
                copy_by_cpu(*copy);
                break;
            case PathKind::copy_engine:
                add_to_engine(*copy);
                break;
            case PathKind::engine_batch:
                add_to_engine_batch(*copy);
                break;
            case PathKind::persistent_kernel:
                persistent_.add(*copy);
                break;
            case PathKind::kernel:
                add_to_batch(*copy);
                break;
        }
    }
    post_to_persistent_kernel();
    if (batch_.stream != nullptr) launch_batch();
    for (const Engine engine : {to_host, to_device, zeroing}) close_group(engine);
}

// --- by the CPU ----------------------------------------------------------------------------------

void CudaChannel::copy_by_cpu(Copy& copy) {
    switch (copy.kind) {
        case Copy::Kind::read:
            forget_loaded_lines();
            load_streaming(copy.staging, copy.cpu, copy.length);
            break;
        case Copy::Kind::write:
            store_streaming(copy.cpu, copy.staging, copy.length);
            store_fence();
            break;
        case Copy::Kind::zero:
            std::memset(copy.cpu, 0, copy.length);
            store_fence();
            break;
    }
    finish(copy, Status::ok);
}

// --- by a copy engine ----------------------------------------------------------------------------

void CudaChannel::add_to_engine(Copy& copy) {
    const Engine engine = engine_of(copy.kind);
    StreamCounter& stream = engines_[engine];
    use_device(state_.ordinal);
    stream.open().push(copy);
    const cudaError_t error = start_on_engine(copy, stream.stream());
    if (error != cudaSuccess) refuse(copy, error, stream.stream());
    open_bytes_[engine] += std::min(copy.length, group_bytes);
    if (open_bytes_[engine] >= group_bytes) close_group(engine);
}

cudaError_t CudaChannel::start_on_engine(const Copy& copy, cudaStream_t stream) const {
    cudaError_t error = cudaSuccess;
    for (std::uint32_t at = 0; at < copy.length && error == cudaSuccess;) {
        const std::uint32_t part = std::min(copy.length - at, options_.chunk_size);
        std::byte* const device = device_pointer(copy) + at;
        switch (copy.kind) {
            case Copy::Kind::read:
                error = cudaMemcpyAsync(copy.staging + at, device, part, cudaMemcpyDeviceToHost,
                                        stream);
                break;
            case Copy::Kind::write:
                error = cudaMemcpyAsync(device, copy.staging + at, part, cudaMemcpyHostToDevice,
                                        stream);
                break;
            case Copy::Kind::zero:
                error = state_.zero(device, part, stream);
                break;
        }
        at += part;
    }
    return error;
}

// A batch is not cut into chunks, and its zeroes come from the pinned ones.
std::uint32_t CudaChannel::longest_in_batch() const {
    return std::min<std::uint32_t>(options_.chunk_size, DeviceState::zeroes_bytes);
}

void CudaChannel::add_to_engine_batch(Copy& copy) {
    const Engine engine = engine_of(copy.kind);
    EngineBatch& batch = engine_batches_[engine];
    const auto device = static_cast<CUdeviceptr>(copy.address);
    const auto host = reinterpret_cast<CUdeviceptr>(
        copy.kind == Copy::Kind::zero ? state_.zeroes.get() : copy.staging);
    engines_[engine].open().push(copy);
    batch.to[batch.count] = copy.kind == Copy::Kind::read ? host : device;
    batch.from[batch.count] = copy.kind == Copy::Kind::read ? device : host;
    batch.lengths[batch.count++] = copy.length;
    open_bytes_[engine] += copy.length;
    if (batch.count == EngineBatch::max || open_bytes_[engine] >= batch_bytes) close_group(engine);
}

void CudaChannel::start_engine_batch(Engine engine) {
    EngineBatch& batch = engine_batches_[engine];
    if (batch.count == 0) return;
    use_device(state_.ordinal);
    const cudaStream_t stream = engines_[engine].stream();
    const CUresult result = memcpy_batch(state_.memcpy_batch, batch.to.data(), batch.from.data(),
                                         batch.lengths.data(), batch.count, stream);
    batch.count = 0;
    if (result == CUDA_SUCCESS) return;
    // Which of them were started is not told: all have failed, and end when the word comes.
    for (Copy* copy = engines_[engine].open().front(); copy != nullptr; copy = copy->next) {
        copy->status = Status::io_error;
    }
    const std::string error = fmt::format("driver error {}", static_cast<int>(result));
    if (context_lost(stream)) {
        state_.fail(error, "the submission of copies");
    } else {
        LogLine(spdlog::level::err)
            .with("device", state_.id)
            .with("error", error)
            .say("{}: copies were refused: {}", state_.id, error);
    }
}

// Asks for the word that tells the end of the engine's open group, if it has any copies.
void CudaChannel::close_group(Engine engine) {
    StreamCounter& stream = engines_[engine];
    if (open_bytes_[engine] == 0) return;
    start_engine_batch(engine);
    open_bytes_[engine] = 0;
    const CUresult result =
        state_.write_value(stream.stream(), reinterpret_cast<CUdeviceptr>(stream.word()),
                           stream.number(), CU_STREAM_WRITE_VALUE_DEFAULT);
    stream.close();
    state_.engine_copies.fetch_add(1, std::memory_order_relaxed);
    if (result != CUDA_SUCCESS) {
        // Without the word nobody could tell when these copies leave their memory alone.
        state_.fail(fmt::format("driver error {}", static_cast<int>(result)),
                    "the submission of copies");
    }
}

// --- by a kernel ---------------------------------------------------------------------------------

bool CudaChannel::make_place_in_batch(const Copy& copy) {
    if (batch_.stream != nullptr && batch_.count + units_of(copy) > max_copy_units) launch_batch();
    if (batch_.stream == nullptr) batch_.stream = free_kernel_stream();
    return batch_.stream != nullptr;
}

void CudaChannel::add_to_batch(Copy& copy) {
    batch_.stream->open().push(copy);
    for (std::uint32_t at = 0; at < copy.length; at += copy_unit_bytes) {
        CopyUnit& unit = batch_.units[batch_.count++];
        std::byte* const device = device_pointer(copy) + at;
        std::byte* const host = copy.staging == nullptr ? nullptr : copy.staging + at;
        unit.from = copy.kind == Copy::Kind::read ? device : host;
        unit.to = copy.kind == Copy::Kind::read ? host : device;
        unit.length = std::min(copy.length - at, copy_unit_bytes);
    }
}

// The one with the least to do, or null: batches then grow until one has ended.
StreamCounter* CudaChannel::free_kernel_stream() {
    const auto least = std::min_element(kernels_.begin(), kernels_.end(),
                                        [](const StreamCounter& a, const StreamCounter& b) {
                                            return a.in_flight() < b.in_flight();
                                        });
    return least->in_flight() < launches_per_stream ? &*least : nullptr;
}

void CudaChannel::launch_batch() {
    use_device(state_.ordinal);
    StreamCounter& stream = *batch_.stream;
    const std::uint32_t count = batch_.count;
    batch_.stream = nullptr;
    batch_.count = 0;
    const auto index = static_cast<std::size_t>(&stream - kernels_.data());
    auto* const blocks_done =
        reinterpret_cast<std::uint32_t*>(scratch_.get() + index * scratch_counter_bytes);
    const cudaError_t error = launch_copy_kernel(batch_.units.data(), count, blocks_done,
                                                 stream.word(), stream.number(), stream.stream());
    if (error == cudaSuccess) {
        stream.close();
        return;
    }
    CopyQueue refused = stream.open();
    stream.open() = CopyQueue{};
    while (Copy* copy = refused.pop()) {
        refuse(*copy, error, stream.stream());
        finish(*copy, copy->status);
    }
}

// --- by the persistent kernel --------------------------------------------------------------------

void CudaChannel::post_to_persistent_kernel() {
    const cudaError_t error = persistent_.post();
    if (error != cudaSuccess) fail_persistent_kernel(error);
}

void CudaChannel::wake_persistent_kernel() {
    slept_through_ = false;
    slept_until_ = std::chrono::steady_clock::now();
    const bool wakes = std::exchange(wakes_persistent_kernel_, false);
    if (!wakes || persistent_.running() || !state_.competition.kernels_allowed()) return;
    const cudaError_t error = persistent_.launch();
    if (error != cudaSuccess) fail_persistent_kernel(error);
}

void CudaChannel::fail_persistent_kernel(cudaError_t error) {
    const Copy* const oldest = persistent_.oldest();
    state_.fail(cuda::to_text(error), oldest == nullptr ? "a launch" : to_text(*oldest));
}

// --- ends ----------------------------------------------------------------------------------------

void CudaChannel::refuse(Copy& copy, cudaError_t error, cudaStream_t stream) {
    copy.status = Status::io_error;
    if (context_lost(stream)) {
        state_.fail(cuda::to_text(error), to_text(copy));
    } else {
        const std::string why = cuda::to_text(error);
        LogLine(spdlog::level::err)
            .with("device", state_.id)
            .with("length", copy.length)
            .with("error", why)
            .say("{}: {} was refused: {}", state_.id, to_text(copy), why);
    }
}

void CudaChannel::collect() {
    CopyQueue ended;
    while (Copy* copy = persistent_.take_ended()) {
        ++kernel_ends_;
        finish(*copy, Status::ok);
    }
    const cudaError_t error = persistent_.keep_alive();
    if (error != cudaSuccess) fail_persistent_kernel(error);
    for (StreamCounter& stream : kernels_) {
        for (; stream.take_ended(ended); finish_all(ended)) ++kernel_ends_;
    }
    for (StreamCounter& stream : engines_) {
        while (stream.take_ended(ended)) {
            state_.engine_copies.fetch_sub(1, std::memory_order_relaxed);
            finish_all(ended);
        }
    }
}

void CudaChannel::finish_all(CopyQueue& ended) {
    while (Copy* copy = ended.pop()) finish(*copy, copy->status);
    if (slept_through_) wake_persistent_kernel();
}

void CudaChannel::look_around() {
    if (++polls_ % polls_per_clock != 0) return;
    const auto now = std::chrono::steady_clock::now();
    look_for_errors(now);
    look_for_competition(now);
}

void CudaChannel::look_for_competition(std::chrono::steady_clock::time_point now) {
    const bool idle = kernels_idle() && persistent_.idle();
    if (idle || kernel_ends_ != kernel_ends_seen_) {
        kernel_ends_seen_ = kernel_ends_;
        no_end_since_ = now;
    } else if (now - no_end_since_ >= Competition::slow) {
        no_end_since_ = now;
        if (state_.competition.kernel_was_slow(now)) watch_.begin();
    }
}

// After a fault on the device the words never come. The streams tell.
void CudaChannel::look_for_errors(std::chrono::steady_clock::time_point now) {
    if (now - looked_ < look_every) return;
    looked_ = now;
    use_device(state_.ordinal);
    const auto look = [&](const auto& stream) {
        const Copy* const oldest = stream.oldest();
        if (oldest == nullptr) return;
        const cudaError_t error = cudaStreamQuery(stream.stream());
        if (error == cudaSuccess || error == cudaErrorNotReady) return;
        state_.fail(cuda::to_text(error), to_text(*oldest));
    };
    std::for_each(kernels_.begin(), kernels_.end(), look);
    std::for_each(engines_.begin(), engines_.end(), look);
    look(persistent_);
}

// The context is gone and with it every copy on the device. Should the hardware still finish one,
// it writes into staging memory of this channel, in which nothing of this device is ever read
// again.
void CudaChannel::fail_everything(CopyQueue& queued) {
    CopyQueue ended;
    while (Copy* copy = persistent_.take_any()) ended.push(*copy);
    for (StreamCounter& stream : kernels_) stream.take_all(ended);
    for (StreamCounter& stream : engines_) {
        state_.engine_copies.fetch_sub(static_cast<std::int32_t>(stream.in_flight()),
                                       std::memory_order_relaxed);
        stream.take_all(ended);
    }
    sort(queued);
    for (Waiting* waiting : {&small_reads_, &small_writes_, &long_}) {
        while (Copy* copy = waiting->pop()) ended.push(*copy);
    }
    std::uint32_t count = 0;
    for (; Copy* const copy = ended.pop(); ++count) finish(*copy, Status::io_error);
    if (count == 0 || failure_logged_) return;
    failure_logged_ = true;
    LogLine(spdlog::level::err)
        .with("device", state_.id)
        .say("{}: {} copies of this worker ended with the device", state_.id, count);
}

}  // namespace gpunbd::storage::cuda
