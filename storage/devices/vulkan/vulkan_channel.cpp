#include "storage/devices/vulkan/vulkan_channel.hpp"

#include <stdexcept>

namespace gpunbd::storage::vulkan {

namespace {

constexpr std::size_t unit_alignment = 64;  // bytes: of what follows the arenas
constexpr std::size_t small_bytes = unit_alignment + ShaderPath::table_bytes;
static_assert(TransferPath::own_bytes <= unit_alignment);

}  // namespace

// The staging memory holds the two arenas, what the transfer path uses, and the units of the
// shader.
VulkanChannel::VulkanChannel(const ChannelOptions& options, VulkanState& state,
                             CompetitionWatch& watch, const CopyShader* shader,
                             const ChannelQueues& queues, const Policy& policy)
    : GpuChannel(options, state, policy),
      state_(state),
      watch_(watch),
      staging_(state.device, 2 * options.pinned + small_bytes),
      transfer_(state, queues.reads, queues.writes, staging_, staging_.get() + 2 * options.pinned) {
    std::byte* const table = staging_.get() + 2 * options.pinned + unit_alignment;
    if (shader != nullptr && queues.computing != nullptr) {
        shader_.emplace(state, *shader, *queues.computing, staging_, table);
    }
    // The first use of a path allocates memory, which must not happen during a request.
    transfer_.warm_up();
    if (shader_) shader_->warm_up();
    CopyPath* const kernel = shader_ ? static_cast<CopyPath*>(&*shader_) : &absent_;
    use({.cpu = &cpu_,
         .copy_engine = &transfer_,
         .engine_batch = &absent_,
         .kernel = kernel,
         .persistent_kernel = &absent_});
    read_staging_.assign(staging_.get(), options.pinned);
    write_staging_.assign(staging_.get() + options.pinned, options.pinned);
}

// For the order of stores into the mapping and later copies, see CudaChannel::receives_into(). In
// addition, Vulkan makes all earlier stores of the CPU into coherent memory visible to the commands
// of each submission.
bool VulkanChannel::receives_into(const Slab& slab, std::uint32_t length) const {
    return slab.cpu != nullptr && policy().choose(Direction::write, Load::alone, length,
                                                  {.mapping = true}) == PathKind::mapping;
}

}  // namespace gpunbd::storage::vulkan
