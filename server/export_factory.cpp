#include "server/export_factory.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <stdexcept>

#include "config/size.hpp"

namespace gpunbd::server {

namespace {

constexpr std::uint64_t host_fallback = 1 * config::GiB;
constexpr std::uint64_t sector = 512;  // bytes: what kernels count a disk's size in

// Are these two served by one and the same volume?
bool same_volume(const config::ExportOptions& a, const config::ExportOptions& b) {
    return a.size == b.size && a.devices == b.devices && a.layout == b.layout &&
           a.stripe_size == b.stripe_size && a.provision == b.provision &&
           a.page_size == b.page_size;
}

// No device was named: the first GPU, or, said aloud, a little host memory.
void choose_device(config::ExportOptions& options) {
    std::string why_none;
    const std::vector<std::string> gpus = DeviceRegistry::gpus(why_none);
    if (!gpus.empty()) {
        options.devices = {gpus.front()};
        return;
    }
    options.devices = {"host"};
    if (options.size.percent != 0) options.size = {.bytes = host_fallback};
    spdlog::warn(
        "export '{}': NO GPU ({}): serving {} of HOST memory instead; name a device to choose",
        options.name, why_none, config::format_size(options.size));
}

std::uint64_t size_in_bytes(const config::Size& size, const std::vector<storage::Device*>& devices,
                            const config::ExportOptions& options) {
    if (size.percent == 0) return size.bytes;
    const bool stripe = options.layout == config::LayoutKind::stripe;
    std::uint64_t sum = 0;
    std::uint64_t least = ~std::uint64_t{0};
    for (const storage::Device* device : devices) {
        const std::uint64_t pages = device->available() / options.page_size;
        sum += pages * options.page_size;
        least = std::min(least, pages * options.page_size);
    }
    const std::uint64_t all = stripe ? least * devices.size() : sum;
    const std::uint64_t share = all / 100 * size.percent;
    // A stripe is only as even as its unit.
    const std::uint64_t unit =
        stripe ? std::max(options.stripe_size, options.page_size) * devices.size() : sector;
    return share / unit * unit;
}

std::shared_ptr<storage::Volume> make_volume(config::ExportOptions options,
                                             DeviceRegistry& registry) {
    if (options.devices.empty()) choose_device(options);
    std::vector<storage::Device*> devices;
    devices.reserve(options.devices.size());
    for (const std::string& id : options.devices) devices.push_back(&registry.open(id));
    storage::VolumeOptions volume;
    volume.size = size_in_bytes(options.size, devices, options);
    volume.page_size = options.page_size;
    if (options.layout == config::LayoutKind::stripe) {
        volume.stripe_size = options.stripe_size != 0 ? options.stripe_size : options.page_size;
    }
    volume.provision = options.provision == config::Provision::full ? storage::Provision::full
                                                                    : storage::Provision::thin;
    if (volume.size == 0) throw std::runtime_error("no memory is available on its devices");
    auto made = storage::Volume::create(volume, devices);
    if (auto* problem = std::get_if<std::string>(&made)) throw std::runtime_error(*problem);
    std::string names;
    for (const storage::Device* device : devices) {
        names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", device->info().id,
                             device->info().name);
    }
    spdlog::info("export '{}': {} bytes on {}, {}, {}", options.name, volume.size, names,
                 options.layout == config::LayoutKind::stripe ? "stripe" : "linear",
                 options.provision == config::Provision::full ? "full" : "thin");
    return std::move(std::get<std::unique_ptr<storage::Volume>>(made));
}

}  // namespace

MadeExports make_exports(const std::vector<config::ExportOptions>& options, DeviceRegistry& devices,
                         const ExportRegistry::Exports& current) {
    MadeExports made;
    for (const config::ExportOptions& wanted : options) {
        auto next = std::make_shared<Export>();
        next->options = wanted;
        const auto kept = std::find_if(current.begin(), current.end(), [&](const auto& old) {
            return old->info.name == wanted.name && same_volume(old->options, wanted);
        });
        try {
            next->volume = kept != current.end() ? (*kept)->volume : make_volume(wanted, devices);
        } catch (const std::exception& error) {
            made.problems.push_back(fmt::format("export '{}': {}", wanted.name, error.what()));
            continue;
        }
        next->info = {.name = wanted.name,
                      .description = wanted.description,
                      .size = next->volume->size(),
                      .read_only = wanted.read_only};
        made.exports.push_back(std::move(next));
    }
    return made;
}

}  // namespace gpunbd::server
