#include "server/daemon/export_factory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "config/quote.hpp"
#include "config/size.hpp"
#include "server/exports/volume_plan.hpp"
#include "storage/base/log_line.hpp"

namespace gpunbd::server {

namespace {

// Returns true if one volume can serve both.
bool same_volume(const config::ExportOptions& a, const config::ExportOptions& b) {
    return a.size == b.size && a.devices == b.devices && a.layout == b.layout &&
           a.stripe_size == b.stripe_size && a.provision == b.provision &&
           a.page_size == b.page_size;
}

std::shared_ptr<storage::Volume> create_volume(const VolumePlan& plan, const VolumeLife& life,
                                               const storage::Retention& keeping) {
    auto made = storage::Volume::create(plan.options, plan.devices, life.stop, keeping);
    if (life.stop.stop_requested()) throw std::runtime_error("cancelled: the server is stopping");
    if (const auto* misfit = std::get_if<storage::Misfit>(&made)) {
        throw std::runtime_error(misfit_text(*misfit, plan.options, plan.devices));
    }
    auto volume = std::move(std::get<std::unique_ptr<storage::Volume>>(made));
    if (life.disposal == nullptr) return volume;
    return life.disposal->shared(std::move(volume));
}

void check_devices_keep(const VolumePlan& plan) {
    for (const storage::Device* device : plan.devices) {
        if (const std::string why = device->reason_not_kept(); !why.empty()) {
            throw std::runtime_error(
                fmt::format("{} cannot keep contents: {}; remove keep", device->info().id, why));
        }
    }
}

std::shared_ptr<storage::Volume> make_volume(const config::ExportOptions& options,
                                             DeviceRegistry& registry, const VolumeLife& life) {
    const VolumePlan plan = plan_volume(options, registry);
    std::shared_ptr<storage::Volume> volume;
    const bool kept = options.keep && life.contents != nullptr;
    if (kept) {
        check_devices_keep(plan);
        volume = life.contents->make(options, [&](const storage::Retention& keeping) {
            return create_volume(plan, life, keeping);
        });
    } else {
        volume = create_volume(plan, life, {});
    }
    const std::string size = config::human_size(plan.options.size);
    const std::string name = config::in_quotes(options.name);
    if (!plan.instead_of_gpu.empty()) {
        storage::LogLine(spdlog::level::warn)
            .with("export", options.name)
            .with("error", plan.instead_of_gpu)
            .say(
                "export {}: NO GPU ({}): serving {} of HOST memory instead; name a device to "
                "choose",
                name, plan.instead_of_gpu, size);
    }
    std::string names;
    for (const storage::Device* device : plan.devices) {
        names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", device->info().id,
                             device->info().name);
    }
    storage::LogLine(spdlog::level::info)
        .with("export", options.name)
        .with("bytes", plan.options.size)
        .with("device", names)
        .say("export {}: {} on {}, {}, {}{}, instance {}", name, size, names,
             options.layout == config::LayoutKind::stripe ? "stripe" : "linear",
             options.provision == config::Provision::full ? "full" : "thin", kept ? ", kept" : "",
             storage::instance_text(volume->shape().instance));
    if (options.layout == config::LayoutKind::stripe && plan.devices.size() < 2) {
        storage::LogLine(spdlog::level::warn)
            .with("export", options.name)
            .say(
                "export {}: layout: stripe has no effect on one device; add devices, or leave it "
                "out",
                name);
    }
    if (options.swap && options.provision == config::Provision::thin) {
        storage::LogLine(spdlog::level::warn)
            .with("export", options.name)
            .say(
                "export {}: it is thin: if the device has no free memory, a swapped-out page and "
                "its "
                "process are lost; remove provision",
                name);
    }
    if (options.keep && !kept) {
        storage::LogLine(spdlog::level::warn)
            .with("export", options.name)
            .say(
                "export {}: no supervisor keeps its contents, so they end with this server; "
                "start it by gpunbd keep, or by systemd with FileDescriptorStoreMax=",
                name);
    }
    return volume;
}

// Appends the instance, so that users can identify the contents.
std::string described(const std::string& configured, const std::string& instance) {
    if (configured.empty()) return "instance " + instance;
    return fmt::format("{} (instance {})", configured, instance);
}

// The export that is replaced and its predecessors, as long as they are in use.
std::vector<std::weak_ptr<const Export>> held_of(const std::shared_ptr<const Export>& replaced) {
    std::vector<std::weak_ptr<const Export>> held{replaced};
    std::copy_if(replaced->earlier.begin(), replaced->earlier.end(), std::back_inserter(held),
                 [](const auto& each) { return !each.expired(); });
    return held;
}

}  // namespace

MadeExports make_exports(const std::vector<config::ExportOptions>& options, DeviceRegistry& devices,
                         const ExportRegistry::Exports& current, const VolumeLife& life) {
    MadeExports made;
    for (const config::ExportOptions& wanted : options) {
        const auto kept = std::find_if(current.begin(), current.end(), [&](const auto& old) {
            return old->info.name == wanted.name && same_volume(old->options, wanted);
        });
        if (kept != current.end() && (*kept)->options == wanted) {
            made.exports.push_back(*kept);
            continue;
        }
        auto next = std::make_shared<Export>();
        next->options = wanted;
        if (kept != current.end()) {
            next->volume = (*kept)->volume;
            next->activity = (*kept)->activity;
            if (wanted.keep && life.contents != nullptr && !next->contents_outlive_server()) {
                storage::LogLine(spdlog::level::warn)
                    .with("export", wanted.name)
                    .say(
                        "export {}: its contents were made without keep and still end with this "
                        "server; "
                        "the next server keeps its contents",
                        config::in_quotes(wanted.name));
            }
        } else if (life.contents != nullptr) {
            try {
                next->volume = life.contents->take_over(wanted, devices, *life.disposal);
            } catch (const std::exception& error) {
                made.refused.push_back(
                    {wanted.name, fmt::format("export '{}': {}", wanted.name, error.what())});
                continue;
            }
        }
        try {
            if (!next->volume) next->volume = make_volume(wanted, devices, life);
        } catch (const std::exception& error) {
            made.problems.push_back(fmt::format("export '{}': {}", wanted.name, error.what()));
            continue;
        }
        // The size was a multiple of the earlier block size.
        if (next->volume->size() % wanted.block_size.minimum != 0) {
            made.problems.push_back(fmt::format(
                "export '{}': its size of {} bytes is not a multiple of "
                "block_size.minimum ({}); keep the old minimum, or change the size as well",
                wanted.name, next->volume->size(), wanted.block_size.minimum));
            continue;
        }
        if (!next->activity) {
            next->activity =
                std::make_shared<ActivityMap>(next->volume->size(), next->volume->page_size());
        }
        if (kept != current.end()) next->earlier = held_of(*kept);
        next->access = AccessList(wanted.access);
        const auto predecessor = std::find_if(current.begin(), current.end(), [&](const auto& old) {
            return old->info.name == wanted.name;
        });
        if (predecessor != current.end()) next->use = (*predecessor)->use;
        const std::string instance = storage::instance_text(next->volume->shape().instance);
        next->info = {.name = wanted.name,
                      .description = described(wanted.description, instance),
                      .instance = instance,
                      .size = next->volume->size(),
                      .read_only = wanted.read_only,
                      .tls_required = wanted.tls_required,
                      .minimum_block = static_cast<std::uint32_t>(wanted.block_size.minimum),
                      .preferred_block = static_cast<std::uint32_t>(wanted.block_size.best()),
                      .maximum_payload = static_cast<std::uint32_t>(wanted.block_size.maximum)};
        made.exports.push_back(std::move(next));
    }
    return made;
}

}  // namespace gpunbd::server
