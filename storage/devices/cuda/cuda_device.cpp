#include "storage/devices/cuda/cuda_device.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "storage/base/log_line.hpp"
#include "storage/devices/cuda/cuda_channel.hpp"
#include "storage/devices/cuda/cuda_device_class.hpp"
#include "storage/devices/cuda/cuda_error.hpp"
#include "storage/devices/cuda/cuda_start.hpp"
#include "storage/devices/gpu/gpu_id.hpp"
#include "storage/devices/gpu/measured_calibration.hpp"
#include "storage/devices/gpu/nvidia_card.hpp"
#include "storage/devices/gpu/pci.hpp"
#include "storage/devices/store.hpp"

namespace gpunbd::storage::cuda {

namespace {

constexpr std::uint64_t min_reserve = 256 << 20;  // bytes
constexpr std::uint64_t reserve_divisor = 32;     // about 3%
constexpr std::uint64_t probe_bytes = 2 << 20;
constexpr std::uint64_t mailbox_bytes = 64 << 10;
constexpr std::uint32_t persistent_channels_wanted =
    16;  // with more channels, each kernel has fewer blocks
constexpr std::uint32_t min_persistent_blocks = 4;

std::string pci_address(int ordinal) {
    std::array<char, 32> text{};
    check(cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), ordinal),
          "the device has no PCI address");
    return parse_pci_address(text.data()).value_or(text.data());
}

// The properties of an existing device. Throws std::runtime_error.
cudaDeviceProp properties_of(int ordinal) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, ordinal), "the device cannot be described");
    return properties;
}

vulkan::Uuid uuid_of(const cudaDeviceProp& properties) {
    vulkan::Uuid uuid{};
    std::memcpy(uuid.data(), &properties.uuid, uuid.size());
    return uuid;
}

}  // namespace

int cuda_device_count(std::string& why_none) noexcept {
    try {
        int count = 0;
        const cudaError_t error = cudaGetDeviceCount(&count);
        if (error == cudaSuccess && count > 0) return count;
        static_cast<void>(cudaGetLastError());
        CudaStart start{.error = error, .error_text = to_text(error), .needed = CUDART_VERSION};
        static_cast<void>(cudaDriverGetVersion(&start.supported));
        start.driver_loaded = ::access("/proc/driver/nvidia/version", F_OK) == 0;
        start.chosen = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
        start.cards = nvidia_cards();
        why_none = reason_without_gpu(start);
    } catch (...) {  // no memory for a message
    }
    return 0;
}

std::optional<int> find_cuda_device(std::string_view id) {
    std::string why_none;
    const int count = cuda_device_count(why_none);
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        const std::string hardware = gpu_identity(uuid_of(properties_of(ordinal)));
        if (is_gpu_named(id, static_cast<std::uint32_t>(ordinal), hardware, pci_address(ordinal))) {
            return ordinal;
        }
    }
    return std::nullopt;
}

CudaDevice::CudaDevice(std::uint32_t number, int ordinal, const DeviceOptions& options,
                       std::string id)
    : Device(number),
      options_(options),
      state_(std::move(id), ordinal, options.gpu_use),
      shareable_(ordinal) {
    describe();
    service_ = Stream(ordinal, Stream::Priority::normal);
    const std::string reason_not_mapped = open_mapping();
    state_.mapped = vulkan_ != nullptr;
    if (options.revocable != 0) {
        const std::uint64_t usable =
            std::min(info_.size(), info_.total - std::min(info_.total, info_.reserve));
        info_.revocable = std::min(options.revocable, usable);
        revocable_ =
            std::make_unique<RevocableMemory>(state_, info_.revocable, info_.total, info_.reserve);
    }
    info_.access = describe_access(reason_not_mapped);
    LogLine(spdlog::level::info)
        .with("device", info_.id)
        .log("{}: {}, {}", info_.id, info_.name, info_.access);
}

CudaDevice::~CudaDevice() {
    use_device(state_.ordinal);
    for (auto& [handle, memory] : mapped_slabs_) release_mapped(vulkan_.get(), memory);
    for (auto& [handle, piece] : shared_slabs_) shareable_.release(piece);
}

void CudaDevice::describe() {
    const cudaDeviceProp properties = properties_of(state_.ordinal);
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "the memory of the device cannot be determined");
    uuid_ = uuid_of(properties);
    info_.id = state_.id;
    info_.name = properties.name;
    info_.identity = info_.hardware = gpu_identity(uuid_);
    info_.address = pci_address(state_.ordinal);
    const PciFacts facts = read_pci_facts(info_.address);
    info_.link = facts.link;
    info_.numa_node = state_.numa_node = facts.numa_node;
    info_.copy_engines = properties.asyncEngineCount;
    info_.total = total;
    info_.capacity = options_.capacity;
    info_.reserve =
        options_.reserve.value_or(std::max<std::uint64_t>(min_reserve, total / reserve_divisor));
}

std::string CudaDevice::describe_access(const std::string& reason_not_mapped) {
    const GpuUse use = state_.competition.use();
    const bool kernels = use != GpuUse::copy_engines;
    std::string text =
        state_.mapped ? fmt::format(
                            "mapped: writes are received into GPU memory, reads by {}copy engines "
                            "and streaming loads",
                            kernels ? "kernels, " : "")
                      : fmt::format("not mapped ({}): by {}copy engines", reason_not_mapped,
                                    kernels ? "kernels and " : "");
    if (kernels) {
        const std::string reason = allow_persistent_kernel();
        if (!reason.empty()) text += "; no persistent kernel (" + reason + ")";
    }
    if (use == GpuUse::automatic) text += "; copy engines only while other programs compute on it";
    if (revocable_ != nullptr) {
        text += fmt::format("; up to {} MiB are revocable, and not mapped", info_.revocable >> 20);
    }
    return text + fmt::format(" (gpu_use: {})", to_text(use));
}

std::span<const OwnedFd> CudaDevice::mapping_files() const {
    if (!mapping_files_) return {};
    return mapping_files_->copies();
}

// --- mapping -------------------------------------------------------------------------------------

std::string CudaDevice::open_mapping() {
    if (options_.mapped == 0U) return "switched off";
    std::string reason;
    const Lock lock(mutex_);
    mapping_files_.emplace(nvidia_file(info_.address));
    vulkan_ = vulkan::VulkanMemory::open(uuid_, reason);
    mapping_files_->end();
    if (vulkan_ != nullptr) reason = try_mapping();
    if (!reason.empty()) {
        vulkan_.reset();
        mapping_files_.reset();
    }
    return reason;
}

std::string CudaDevice::try_mapping() {
    MappedMemory memory;
    std::string reason;
    no_room_to_map_ = !allocate_mapped(*vulkan_, probe_bytes, nullptr, memory, reason);
    if (no_room_to_map_) return reason;
    std::byte* const cpu = memory.mapping.cpu;
    std::byte* const on_device = memory.opaque.device;
    constexpr std::size_t length = 4096;
    std::array<std::byte, length> expected{};
    std::array<std::byte, length> seen{};
    expected.fill(std::byte{0x5a});
    cudaError_t error = cudaMemsetAsync(on_device, 0x5a, probe_bytes, service_.get());
    if (error == cudaSuccess) error = cudaStreamSynchronize(service_.get());
    load_streaming(seen.data(), cpu + probe_bytes - length, length);
    if (error == cudaSuccess && seen != expected) reason = "the CPU does not see what CUDA writes";

    for (std::size_t i = 0; i < length; ++i) expected[i] = static_cast<std::byte>(i * 7);
    store_streaming(cpu, expected.data(), length);
    store_fence();
    if (error == cudaSuccess) {
        error =
            cudaMemcpyAsync(seen.data(), on_device, length, cudaMemcpyDeviceToHost, service_.get());
    }
    if (error == cudaSuccess) error = cudaStreamSynchronize(service_.get());
    if (error == cudaSuccess && seen != expected) reason = "CUDA does not see what the CPU writes";
    if (error != cudaSuccess) reason = to_text(error);
    release_mapped(vulkan_.get(), memory);
    return reason;
}

// --- persistent kernels --------------------------------------------------------------------------

std::string CudaDevice::allow_persistent_kernel() {
    const auto attribute = [&](cudaDeviceAttr name) {
        int value = 0;
        check(cudaDeviceGetAttribute(&value, name, state_.ordinal),
              "a device attribute is unknown");
        return value;
    };
    // A running kernel sees stores of the CPU into the mapping in order only if the GPU guarantees
    // this for all writes from the bus.
    if (state_.mapped &&
        attribute(cudaDevAttrGPUDirectRDMAWritesOrdering) < cudaGPUDirectRDMAWritesOrderingOwner) {
        return "the GPU does not order writes from the bus for running kernels";
    }
    // Persistent kernels use at most half of the blocks that can run at once, so that other kernels
    // can run.
    const int per_processor =
        attribute(cudaDevAttrMaxThreadsPerMultiProcessor) / persistent_block_threads;
    const auto room =
        static_cast<std::uint32_t>(attribute(cudaDevAttrMultiProcessorCount) * per_processor / 2);
    std::uint32_t blocks = max_persistent_blocks;
    while (blocks > min_persistent_blocks && room / blocks < persistent_channels_wanted)
        blocks /= 2;
    state_.persistent_kernel_blocks = blocks;
    state_.persistent_kernel_slots = static_cast<std::int32_t>(room / blocks);
    return {};
}

// --- channels ------------------------------------------------------------------------------------

std::unique_ptr<Channel> CudaDevice::open_channel(const ChannelOptions& options) {
    return open_cuda_channel(options);
}

std::unique_ptr<CudaChannel> CudaDevice::open_cuda_channel(const ChannelOptions& options) {
    const Policy& policy = options.policy == nullptr ? calibration_.policy : *options.policy;
    return std::make_unique<CudaChannel>(tuned(options, calibration_), state_, competition_watch_,
                                         policy, make_mailbox());
}

// In GPU memory, which the kernel polls fastest. Without a mapping the kernel has to poll over the
// bus.
MailboxMemory CudaDevice::make_mailbox() {
    use_device(state_.ordinal);
    MappedMemory memory;
    bool is_mapped = false;
    {
        const Lock lock(mutex_);
        std::string reason;
        is_mapped =
            vulkan_ != nullptr && allocate_mapped(*vulkan_, mailbox_bytes, nullptr, memory, reason);
    }
    if (is_mapped) {
        // If there is no memory for the owner, it releases the mapping at once.
        auto owner = std::shared_ptr<void>(memory.mapping.cpu, [this, memory](void*) mutable {
            use_device(state_.ordinal);
            const Lock relock(mutex_);
            release_mapped(vulkan_.get(), memory);
        });
        std::memset(memory.mapping.cpu, 0, sizeof(Mailbox));
        store_fence();
        return {.cpu = reinterpret_cast<Mailbox*>(memory.mapping.cpu),
                .device = reinterpret_cast<Mailbox*>(memory.opaque.device),
                .owner = std::move(owner)};
    }
    auto pinned = std::make_shared<PinnedMemory>(state_.ordinal, sizeof(Mailbox), state_.numa_node);
    auto* const mailbox = reinterpret_cast<Mailbox*>(pinned->get());
    return {.cpu = mailbox, .device = mailbox, .owner = std::move(pinned)};
}

std::unique_ptr<Device> open_cuda_device(std::uint32_t number, int ordinal,
                                         const DeviceOptions& options, std::string id) {
    if (id.empty()) id = fmt::format("cuda:{}", ordinal);
    try {
        return std::make_unique<CudaDevice>(number, ordinal, options, id);
    } catch (const std::runtime_error& error) {
        throw std::runtime_error(fmt::format("{}: {}", id, error.what()));
    }
}

std::string CudaDevice::calibrate() {
    const MeasuredCalibration found = measure_calibration(
        {.device = *this,
         .open_channel =
             [this](const ChannelOptions& options) { return open_cuda_channel(options); },
         .kernels_allowed = [this] { return state_.competition.kernels_allowed(); },
         .persistent_kernel = true,
         .engine_batch = state_.memcpy_batch != nullptr});
    calibration_ = found.calibration;
    // A disturbed measurement is not saved, so that the next process measures again.
    const bool lasts = !found.disturbed || options_.gpu_use == GpuUse::copy_engines;
    calibration_state_ = lasts ? saved(calibration_, circumstances()) : std::string();
    return found.text;
}

bool CudaDevice::restore_calibration(std::string_view state) {
    const std::optional<Calibration> found = read_calibration(state, circumstances());
    if (!found) return false;
    calibration_ = *found;
    calibration_state_ = state;
    return true;
}

std::string CudaDevice::circumstances() const {
    int driver = 0;
    check(cudaDriverGetVersion(&driver), "the version of the driver cannot be determined");
    return fmt::format("{}, {}, driver {}, {}, gpu_use {}", info_.name, info_.link, driver,
                       state_.mapped ? "mapped" : "not mapped", to_text(options_.gpu_use));
}

}  // namespace gpunbd::storage::cuda
