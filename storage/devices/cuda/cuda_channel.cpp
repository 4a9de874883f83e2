#include "storage/devices/cuda/cuda_channel.hpp"

#include <utility>

#include "storage/devices/cuda/cuda_error.hpp"

namespace gpunbd::storage::cuda {

namespace {

constexpr std::size_t cache_line = 64;          // bytes: words that should not share a cache line
constexpr std::size_t scratch_bytes = 8 << 10;  // the counters, followed by memory for warm_up()
static_assert(KernelPath::counters_bytes <= scratch_bytes / 2);

std::uint32_t* word(const PinnedMemory& words, std::size_t number) {
    return reinterpret_cast<std::uint32_t*>(words.get() + number * cache_line);
}

}  // namespace

CudaChannel::CudaChannel(const ChannelOptions& options, DeviceState& state, CompetitionWatch& watch,
                         const Policy& policy, MailboxMemory mailbox)
    : GpuChannel(options, state, policy),
      state_(state),
      watch_(watch),
      staging_(state.ordinal, 2 * options.pinned, state.numa_node),
      words_(state.ordinal, (KernelPath::streams + EngineStreams::count) * cache_line,
             state.numa_node),
      scratch_(state.ordinal, scratch_bytes),
      persistent_kernel_(state, std::move(mailbox)),
      kernel_(state, {word(words_, 0), word(words_, 1), word(words_, 2), word(words_, 3)},
              scratch_.get()),
      engine_streams_(state, {word(words_, 4), word(words_, 5), word(words_, 6)}),
      engine_(state, engine_streams_, options_.chunk_size),
      engine_batch_(state, engine_streams_, options_.chunk_size) {
    warm_up();
    use({.cpu = &cpu_,
         .copy_engine = &engine_,
         .engine_batch = &engine_batch_,
         .kernel = &kernel_,
         .persistent_kernel = &persistent_kernel_});
    read_staging_.assign(staging_.get(), options.pinned);
    write_staging_.assign(staging_.get() + options.pinned, options.pinned);
}

// The first use of a path loads code and allocates memory, which must not happen during a request.
void CudaChannel::warm_up() {
    std::byte* const device = scratch_.get() + scratch_bytes / 2;
    if (state_.competition.use() != GpuUse::copy_engines) kernel_.warm_up(device, staging_.get());
    persistent_kernel_.warm_up();
    for (const Copy::Kind kind : {Copy::Kind::read, Copy::Kind::write, Copy::Kind::zero}) {
        Copy copy;
        copy.kind = kind;
        copy.length = 16;
        copy.address = reinterpret_cast<std::uintptr_t>(device);
        copy.staging = staging_.get();
        try_engine(engine_, copy);
        if (engine_batch_.can_take(copy) && !try_engine(engine_batch_, copy)) {
            engine_batch_.disable();
        }
    }
}

bool CudaChannel::try_engine(CopyPath& path, Copy& copy) {
    path.add(copy);
    EngineStream& engine = engine_streams_.of(copy.kind);
    engine.close();
    check(cudaStreamSynchronize(engine.stream()), "the copy engines do not work");
    CopyQueue ended;
    engine.take_ended(ended);
    return copy.status == Status::ok;
}

// Why a read that is submitted after a fenced store sees the store, on every path:
// - The fence drains the CPU's write-combining buffers, so the stores are posted writes on their
// way
//   to the GPU. What starts a copy or a kernel reaches the GPU after them. A doorbell is a posted
//   write too, and posted writes of one root port do not pass each other. A command that the GPU
//   fetches from host memory arrives in a completion, which does not pass posted writes either
//   (PCIe base specification, ordering rules).
// - At the GPU, writes through the window go to the L2 cache, which the copy engines read. Kernels
//   bypass the caches of their multiprocessor.
// - A streaming load is a read request, which pushes posted writes ahead of it. Lines that were
//   loaded before are dropped first.
// - For a read on another worker, the fence comes before the reply to the writing client, the reply
//   before the read request, and the request before that worker's doorbell.
// - The persistent kernel is notified by a store after a fence, through the same window or in host
//   memory. A running kernel sees writes from the bus in order only if the GPU guarantees it.
//   Otherwise a device with mapped slabs has no persistent kernels
//   (CudaDevice::allow_persistent_kernel).
// In the other direction, a copy to the device completes only after its bytes are in the L2 cache,
// so that later loads and stores through the window find them there.
bool CudaChannel::receives_into(const Slab& slab, std::uint32_t length) const {
    return slab.cpu != nullptr && policy().choose(Direction::write, Load::alone, length,
                                                  {.mapping = true}) == PathKind::mapping;
}

}  // namespace gpunbd::storage::cuda
