#include "storage/devices/vulkan/vulkan_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "storage/base/log_line.hpp"
#include "storage/devices/channel.hpp"
#include "storage/devices/gpu/gpu_id.hpp"
#include "storage/devices/gpu/measured_calibration.hpp"
#include "storage/devices/gpu/pci.hpp"
#include "storage/devices/vulkan/command_buffers.hpp"
#include "storage/devices/vulkan/physical_device.hpp"
#include "storage/devices/vulkan/staging_memory.hpp"
#include "storage/devices/vulkan/vulkan_channel.hpp"
#include "storage/devices/vulkan/vulkan_device_class.hpp"
#include "storage/devices/vulkan/vulkan_state.hpp"

namespace gpunbd::storage::vulkan {

namespace {

// Checks that a queue copies, and how fast: some drivers list queues that do not work or are slow.

constexpr std::uint64_t probe_bytes = 4 << 20;

// Copies a pattern to the device and back, compares it, and returns the rate of the way back in
// bytes per second. Throws Unavailable with the reason if the queue does not copy.
double copy_rate(VulkanState& state, Queue& queue) {
    LogicalDevice& device = state.device;
    const StagingMemory staging(device, 2 * probe_bytes);
    Buffer memory;
    require(
        Buffer::make(device, {.bytes = probe_bytes, .type = device.memory().local_type}, memory),
        "no memory for a test");
    std::byte* const sent = staging.get();
    std::byte* const received = sent + probe_bytes;
    for (std::uint64_t i = 0; i != probe_bytes; ++i) sent[i] = static_cast<std::byte>(i * 7 + 1);
    BlockingCommands commands(state, queue);
    const DeviceFunctions& call = device.functions();
    // In two submissions, which is how writes and reads follow each other. The fill clears the end.
    constexpr std::uint64_t filled = probe_bytes / 4;
    require(commands.run([&](VkCommandBuffer buffer) {
        const VkBufferCopy region{.srcOffset = 0, .dstOffset = 0, .size = probe_bytes - filled};
        call.CmdCopyBuffer(buffer, staging.buffer(), memory.get(), 1, &region);
        call.CmdFillBuffer(buffer, memory.get(), probe_bytes - filled, filled, 0);
    }),
            "a copy to it fails");
    const auto begin = std::chrono::steady_clock::now();
    require(commands.run([&](VkCommandBuffer buffer) {
        const VkBufferCopy region{.srcOffset = 0, .dstOffset = probe_bytes, .size = probe_bytes};
        call.CmdCopyBuffer(buffer, memory.get(), staging.buffer(), 1, &region);
    }),
            "a copy from it fails");
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::memset(sent + probe_bytes - filled, 0, filled);
    if (!std::equal(sent, sent + probe_bytes, received)) {
        throw Unavailable("its copies have other contents");
    }
    return static_cast<double>(probe_bytes) / took.count();
}

constexpr std::uint64_t system_reserve = 512 << 20;  // bytes, of memory that the CPU uses too
constexpr std::uint64_t min_reserve = 256 << 20;     // bytes
constexpr std::uint64_t reserve_divisor = 32;        // about 3%

std::uint64_t default_reserve(const PhysicalDevice& physical, std::uint64_t total) {
    return physical.shares_system_memory() ? system_reserve
                                           : std::max(min_reserve, total / reserve_divisor);
}

std::string describe_memory(const VkPhysicalDeviceMemoryProperties& memory) {
    std::string text;
    for (std::uint32_t heap = 0; heap < memory.memoryHeapCount; ++heap) {
        VkMemoryPropertyFlags all = 0;
        for (std::uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
            if (memory.memoryTypes[i].heapIndex == heap) all |= memory.memoryTypes[i].propertyFlags;
        }
        const bool own = (memory.memoryHeaps[heap].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0;
        text += fmt::format("{}{} MiB {}{}", text.empty() ? "" : ", ",
                            memory.memoryHeaps[heap].size >> 20, own ? "local" : "of the host",
                            (all & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) != 0 ? ", mappable" : "");
    }
    return text;
}

std::string describe_queues(const std::vector<VkQueueFamilyProperties>& families) {
    std::string text;
    for (const VkQueueFamilyProperties& family : families) {
        const bool draws = (family.queueFlags & VK_QUEUE_GRAPHICS_BIT) != 0;
        const bool computes = (family.queueFlags & VK_QUEUE_COMPUTE_BIT) != 0;
        text += fmt::format("{}{} {}", text.empty() ? "" : ", ", family.queueCount,
                            draws      ? "graphics"
                            : computes ? "compute"
                                       : "transfer");
    }
    return text;
}

// On the CPU all programs compute, so a competing one cannot be detected.
GpuUse use_of(const PhysicalDevice& physical, GpuUse wanted) {
    return physical.on_cpu() && wanted == GpuUse::automatic ? GpuUse::all : wanted;
}

}  // namespace

DeviceInfo describe(const PhysicalDevice& physical) {
    DeviceInfo info;
    info.id = fmt::format("vulkan:{}", physical.number);
    info.name = physical.name;
    info.driver = physical.driver;
    info.hardware = gpu_identity(physical.uuid);
    info.identity = identity_of(info.hardware);
    info.memory = describe_memory(physical.memory);
    info.queues = describe_queues(physical.queues);
    if (!physical.address.empty()) {
        const PciFacts facts = read_pci_facts(physical.address);
        info.address = physical.address;
        info.link = facts.link;
        info.numa_node = facts.numa_node;
    }
    if (const auto plan = plan_memory(physical.memory, ~std::uint32_t{0})) info.total = plan->bytes;
    return info;
}

VulkanDevice::VulkanDevice(std::uint32_t number, const std::string& id,
                           std::shared_ptr<const Instance> instance,
                           const PhysicalDevice& physical_device, const DeviceOptions& options)
    : Device(number),
      options_(options),
      state_(id, use_of(physical_device, options.gpu_use), instance, physical_device),
      info_(describe(physical_device)),
      kept_(std::make_unique<KeptMemory>(state_, std::move(instance))) {
    info_.id = id;
    info_.total = memory().bytes;
    info_.capacity = options.capacity;
    info_.reserve = options.reserve.value_or(default_reserve(physical(), info_.total));
    // A limit of mapped memory means that copies are wanted.
    in_place_ = memory().cached && !options.mapped;
    state_.copy_family = find_copy_family();
    service_.emplace(state_, state_.device.queues(state_.copy_family).front());
    const std::string reason_without_shader = open_shader();
    if (ResidencyCheck::is_needed(physical()) && state_.device.plan().computing) {
        residency_.emplace(state_, state_.device.queues(*state_.device.plan().computing).front());
    }
    watch_.emplace(state_, [this] { look_for_faults(); });
    competition_watch_.emplace(
        state_, CompetitionWatch::Probe{.launch = [this] { return probe_ && probe_->launch(); },
                                        .ended = [this] { return probe_->ended(); }});
    info_.access = describe_access(reason_without_shader);
    LogLine(spdlog::level::info)
        .with("device", info_.id)
        .log("{}: {}, {}", info_.id, info_.name, info_.access);
}

std::uint32_t VulkanDevice::find_copy_family() {
    std::vector<QueueTrial> trials;
    std::string reasons;
    for (const std::uint32_t family : state_.device.plan().copying) {
        QueueTrial trial{.family = family};
        try {
            trial.rate = copy_rate(state_, state_.device.queues(family).front());
        } catch (const std::runtime_error& error) {
            reasons +=
                fmt::format("{}family {}: {}", reasons.empty() ? "" : "; ", family, error.what());
        }
        trials.push_back(trial);
    }
    const std::optional<std::uint32_t> chosen = choose_family(trials);
    if (!chosen) throw Unavailable(fmt::format("none of its queues copies ({})", reasons));
    return *chosen;
}

std::string VulkanDevice::open_shader() {
    if (options_.gpu_use == GpuUse::copy_engines) return "switched off";
    if (!state_.device.plan().computing) return "no queue computes";
    if (!physical().device_addresses) return "the driver has no device addresses";
    try {
        shader_.emplace(state_.device);
        probe_.emplace(state_, *shader_,
                       state_.device.queues(*state_.device.plan().computing).back());
        probe_->check();
    } catch (const std::runtime_error& error) {
        probe_.reset();
        shader_.reset();
        return error.what();
    }
    return {};
}

std::string VulkanDevice::describe_access(const std::string& reason_without_shader) const {
    const char* const where = physical().on_cpu() ? "on the CPU, for tests: " : "";
    if (in_place_) return fmt::format("{}received into and sent from in place", where);
    const char* const how = shader_ ? "shaders and transfers" : "transfers";
    std::string text = where;
    if (options_.mapped == 0U) {
        text += fmt::format("not mapped (switched off): by {}", how);
    } else if (memory().mapped_type) {
        text += fmt::format("mapped: writes are received into GPU memory, reads by {}", how);
    } else {
        text += fmt::format("not mapped (the CPU cannot address all of its memory): by {}", how);
    }
    if (!shader_) text += fmt::format("; no shader ({})", reason_without_shader);
    if (residency_ && !residency_->works()) {
        text += "; whether its slabs lie in host memory cannot be measured";
    }
    if (!state_.device.tells_free_memory() && !is_system_memory()) {
        text += "; its driver does not report free memory: memory of other programs is unknown";
    }
    return text;
}

DeviceUse VulkanDevice::use(std::uint64_t allocated) const {
    const Competition& competition = state_.competition;
    const Lock lock(mutex_);
    DeviceUse use{.mapped = in_place_ ? allocated : mapped_bytes_};
    // Otherwise other programs are not detected.
    if (shader_ && !in_place_ && competition.use() == GpuUse::automatic) {
        use.others_compute = competition.noticed();
        use.competition_noticed = competition.times_noticed();
    }
    return use;
}

// An idle GPU may sleep: submitting to it every time would keep it awake, so only the driver is
// asked.
void VulkanDevice::look_for_faults() noexcept {
    const VkResult result = service_->query();
    if (result != VK_SUCCESS) {
        state_.report(result, "no operation (detected by the device watch)");
    }
}

std::unique_ptr<Channel> VulkanDevice::open_channel(const ChannelOptions& options) {
    if (in_place_) return std::make_unique<InPlaceChannel>(options);
    return open_vulkan_channel(options);
}

std::unique_ptr<VulkanChannel> VulkanDevice::open_vulkan_channel(const ChannelOptions& options) {
    const Policy& policy = options.policy == nullptr ? calibration_.policy : *options.policy;
    const std::size_t channel = channels_.fetch_add(1);
    std::deque<Queue>& copying = state_.device.queues(state_.copy_family);
    // Reads and writes of a channel use different queues if there are two.
    ChannelQueues queues{.reads = copying[2 * channel % copying.size()],
                         .writes = copying[(2 * channel + 1) % copying.size()]};
    if (shader_) {
        std::deque<Queue>& computing = state_.device.queues(*state_.device.plan().computing);
        queues.computing = &computing[channel % computing.size()];
    }
    return std::make_unique<VulkanChannel>(tuned(options, calibration_), state_,
                                           *competition_watch_, shader_ ? &*shader_ : nullptr,
                                           queues, policy);
}

std::unique_ptr<Device> open_vulkan_device(std::uint32_t number, const std::string& id,
                                           std::shared_ptr<const Instance> instance,
                                           const PhysicalDevice& physical,
                                           const DeviceOptions& options) {
    try {
        return std::make_unique<VulkanDevice>(number, id, std::move(instance), physical, options);
    } catch (const std::runtime_error& error) {
        throw std::runtime_error(fmt::format("{}: {}: {}", id, physical.name, error.what()));
    }
}

std::string VulkanDevice::calibrate() {
    if (in_place_) return {};
    const MeasuredCalibration found = measure_calibration(
        {.device = *this,
         .open_channel =
             [this](const ChannelOptions& options) { return open_vulkan_channel(options); },
         .kernels_allowed = [this] { return state_.competition.kernels_allowed(); },
         .kernel = shader_.has_value()});
    calibration_ = found.calibration;
    // A disturbed measurement is not saved, so that the next process measures again.
    const bool lasts = !found.disturbed || options_.gpu_use == GpuUse::copy_engines;
    calibration_state_ = lasts ? saved(calibration_, circumstances()) : std::string();
    return found.text;
}

bool VulkanDevice::restore_calibration(std::string_view state) {
    const std::optional<Calibration> found = read_calibration(state, circumstances());
    if (!found) return false;
    calibration_ = *found;
    calibration_state_ = state;
    return true;
}

std::string VulkanDevice::circumstances() const {
    return fmt::format("Vulkan, {}, {}, {}, {}, {}, gpu_use {}", info_.name, info_.link,
                       info_.driver, memory().mapped_type ? "mappable" : "not mappable",
                       shader_ ? "shader" : "no shader", to_text(options_.gpu_use));
}

}  // namespace gpunbd::storage::vulkan
