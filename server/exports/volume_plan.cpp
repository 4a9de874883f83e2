#include "server/exports/volume_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "config/rules.hpp"
#include "config/size.hpp"
#include "storage/origins/origin_file.hpp"
#include "storage/origins/origin_nbd.hpp"

namespace gpunbd::server {

namespace {

constexpr std::uint64_t size_without_gpu = 1 * config::GiB;

std::string ids_of(const std::vector<storage::Device*>& devices) {
    std::string ids;
    for (const storage::Device* device : devices) {
        ids += (ids.empty() ? "" : ", ") + device->info().id;
    }
    return ids;
}

// Why less is available than is free.
std::string reserve_of(const std::vector<storage::Device*>& devices) {
    if (devices.size() > 1) return " beside their reserves";
    const storage::DeviceInfo& info = devices.front()->info();
    return fmt::format(
        "{}{}", info.reserve == 0 ? "" : " beside a reserve of " + config::human_size(info.reserve),
        info.identity != "host" || info.memory.empty() ? "" : ", " + info.memory);
}

// A round size of at most `bytes` in the notation of the configuration, rounded down by less than a
// tenth.
std::string round_size(std::uint64_t bytes) {
    std::uint64_t unit = 1;
    while (bytes / unit >= 10 * 1024) unit *= 1024;
    return config::format_size({.bytes = bytes / unit * unit});
}

// The size as text; exact if the rounded text would equal that of the requested size.
std::string size_beside(std::uint64_t available, std::uint64_t asked) {
    const std::string rounded = config::human_size(available);
    return rounded == config::human_size(asked) ? config::format_size({.bytes = available})
                                                : rounded;
}

std::string nothing_available(const std::vector<storage::Device*>& devices) {
    return fmt::format(
        "no memory is available on {}{}; stop the programs that use it, or set a smaller reserve",
        ids_of(devices), reserve_of(devices));
}

// `block`: the minimum block, a power of two.
std::uint64_t share_in_bytes(std::uint32_t percent, std::uint64_t block, const VolumePlan& plan,
                             const std::vector<std::uint64_t>& available) {
    const std::uint64_t stripe = plan.options.stripe_size;
    std::uint64_t all = 0;
    std::uint64_t min = ~std::uint64_t{0};
    for (const std::uint64_t bytes : available) {
        const std::uint64_t whole = bytes / plan.options.page_size * plan.options.page_size;
        all += whole;
        min = std::min(min, whole);
    }
    if (stripe != 0) all = min * available.size();
    const std::uint64_t share = all / 100 * percent + all % 100 * percent / 100;
    // A stripe is only as even as its unit.
    const std::uint64_t unit =
        stripe != 0 ? stripe * available.size() : std::max(config::rules::sector, block);
    if (share >= unit) return share / unit * unit;
    if (all == 0) throw std::runtime_error(nothing_available(plan.devices));
    throw std::runtime_error(fmt::format(
        "{}% of the {} available on {} is less than {}; set a larger share", percent,
        config::human_size(all), ids_of(plan.devices),
        stripe != 0 ? "one turn of the stripe" : fmt::format("a block of {} bytes", unit)));
}

const std::string& hardware_of(const storage::Device& device) {
    const storage::DeviceInfo& info = device.info();
    return info.hardware.empty() ? info.identity : info.hardware;
}

// Two drivers may know the same card, and would count its memory twice.
void check_hardware(const std::vector<std::string>& ids,
                    const std::vector<storage::Device*>& devices) {
    for (std::size_t i = 0; i != devices.size(); ++i) {
        for (std::size_t j = 0; j != i; ++j) {
            const std::string& hardware = hardware_of(*devices[i]);
            if (hardware != hardware_of(*devices[j])) continue;
            throw std::runtime_error(fmt::format("{} and {} are the same device, {}; leave one out",
                                                 ids[j], ids[i], hardware));
        }
    }
}

}  // namespace

std::string error_text(const storage::CapacityError& error, const storage::VolumeOptions& options,
                       const std::vector<storage::Device*>& devices) {
    if (error.ran_out) {
        return fmt::format(
            "{} ran out of memory while {} were allocated; set a smaller size, or provision thin",
            devices[*error.device]->info().id, config::human_size(error.asked));
    }
    const std::string asked =
        config::format_size({.bytes = error.asked});  // as in the configuration
    const std::string available = size_beside(error.available, error.asked);
    const std::string ask =
        error.largest == 0 ? "stop the programs that use the rest, or set a smaller reserve"
        : options.memory != 0
            ? fmt::format("set a cache of at most {}", round_size(error.largest))
            : fmt::format("set a size of at most {}, or 100%", round_size(error.largest));
    if (error.device) {
        storage::Device* const lacking = devices[*error.device];
        return fmt::format(
            "{} do not fit as a stripe over {}: {} needs {}, and {} are available{}; {}",
            config::format_size({.bytes = options.size}), ids_of(devices), lacking->info().id,
            asked, available, reserve_of({lacking}), ask);
    }
    if (error.available == 0) return nothing_available(devices);
    return fmt::format("{} do not fit on {}: {} are available{}; {}", asked, ids_of(devices),
                       available, reserve_of(devices), ask);
}

namespace {

// A text is the reason why there is none.
template <typename Value>
Value unwrapped(std::variant<Value, std::string> result) {
    if (const auto* const why = std::get_if<std::string>(&result)) {
        throw std::runtime_error("origin: " + *why);
    }
    return std::move(std::get<Value>(result));
}

std::unique_ptr<storage::Origin> open_origin(const config::OriginOptions& wanted,
                                             std::uint64_t minimum_block, OriginLocks* locks) {
    using Kind = storage::OriginFile::Kind;
    std::unique_ptr<storage::Origin> origin;
    std::string remedy = "resize it on its server";
    const std::uint64_t block = std::max(config::rules::sector, minimum_block);
    if (!wanted.nbd.empty()) {
        origin = unwrapped(storage::OriginNbd::open(wanted.nbd, wanted.is_writable(), {}));
    } else {
        const Kind kind = wanted.file.empty() ? Kind::block_device : Kind::file;
        auto lock = locks != nullptr ? locks->extract(wanted.path()) : OriginLocks::node_type();
        origin = unwrapped(
            storage::OriginFile::open(wanted.path(), kind, wanted.is_writable(),
                                      lock.empty() ? OwnedFd() : std::move(lock.mapped())));
        remedy = fmt::format("extend it: truncate -s %{} {}", block, wanted.path());
    }
    if (const std::uint64_t size = origin->size(); size % block != 0) {
        throw std::runtime_error(
            fmt::format("origin: {}: its size of {} bytes is not a multiple of {}; {}",
                        wanted.path(), size, block, remedy));
    }
    return origin;
}

// The most bytes of the volume that are in memory at once.
std::uint64_t memory_of(const config::OriginOptions& wanted, const VolumePlan& plan,
                        std::uint64_t available) {
    const std::uint64_t page = plan.options.page_size;
    const std::uint64_t whole = (plan.options.size + page - 1) / page * page;
    const std::uint64_t most = wanted.cache.value_or(available) / page * page;
    if (most < std::min(config::rules::fewest_cached_pages * page, whole)) {
        throw std::runtime_error(nothing_available(plan.devices));
    }
    return std::min(most, whole);
}

}  // namespace

OriginPlan plan_origin(const config::ExportOptions& wanted, DeviceRegistry& registry,
                       const storage::Device& device, OriginLocks* locks) {
    OriginPlan plan;
    plan.claim = unwrapped(
        storage::OriginClaim::make(wanted.origin.path(), wanted.name, wanted.origin.is_writable()));
    plan.origin = open_origin(wanted.origin, wanted.block_size.minimum, locks);
    storage::Device& host = registry.open(registry.others().at(0));
    if (&host != &device) plan.reserve = &host;
    return plan;
}

VolumePlan plan_volume(const config::ExportOptions& wanted, DeviceRegistry& registry,
                       const Promised& promised, OriginLocks* locks) {
    VolumePlan plan;
    std::vector<std::string> ids = wanted.devices;
    config::Size size = wanted.size.value_or(config::Size{.percent = 100});
    if (ids.empty()) {
        // No device is named: use the first GPU, or else host memory of a small default size.
        ids = {registry.first_gpu(plan.instead_of_gpu)};
        if (ids[0].empty()) {
            ids = {registry.others().at(0)};
            if (!wanted.size) size = {.bytes = size_without_gpu};
        }
    }
    std::vector<std::uint64_t> available;
    for (const std::string& id : ids) {
        storage::Device& device = registry.open(id);
        plan.devices.push_back(&device);
        const auto found = promised.find(&device);
        const std::uint64_t gone = found == promised.end() ? 0 : found->second;
        const std::uint64_t there = device.available();
        available.push_back(there > gone ? there - gone : 0);
    }
    check_hardware(ids, plan.devices);
    plan.options.page_size = wanted.page_size;
    if (wanted.layout == config::LayoutKind::stripe) {
        plan.options.stripe_size = wanted.stripe_size != 0 ? wanted.stripe_size : wanted.page_size;
    }
    plan.options.provision = wanted.provision == config::Provision::full ? storage::Provision::full
                                                                         : storage::Provision::thin;
    const std::uint64_t minimum_block = wanted.block_size.minimum;
    if (wanted.has_origin()) {
        plan.origin = plan_origin(wanted, registry, *plan.devices.front(), locks);
        plan.options.size = plan.origin.origin->size();
        plan.options.memory = memory_of(wanted.origin, plan, available.front());
    } else {
        plan.options.size = size.percent != 0
                                ? share_in_bytes(size.percent, minimum_block, plan, available)
                                : size.bytes;
    }
    auto layout = storage::lay_out(plan.options, available);
    if (const auto* error = std::get_if<storage::CapacityError>(&layout)) {
        throw std::runtime_error(error_text(*error, plan.options, plan.devices));
    }
    plan.layout = std::move(std::get<storage::Layout>(layout));
    if (!wanted.has_origin()) plan.spills = registry.spills_of(plan.devices);
    return plan;
}

}  // namespace gpunbd::server
