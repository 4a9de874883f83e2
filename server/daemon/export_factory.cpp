#include "server/daemon/export_factory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <stdexcept>

#include "config/quote.hpp"
#include "config/size.hpp"
#include "server/base/expected.hpp"
#include "server/exports/export.hpp"
#include "server/exports/volume_plan.hpp"
#include "storage/base/log_line.hpp"
#include "storage/base/long_work.hpp"
#include "storage/images/restore_image.hpp"
#include "storage/origins/origin_cache.hpp"
#include "storage/origins/origin_clone.hpp"

namespace gpunbd::server {

namespace {

// Returns true if one volume can serve both.
bool same_volume(const Export& old, const config::ExportOptions& b) {
    const config::ExportOptions& a = old.options;
    // The volume may have been resized.
    const bool same_size =
        a.size == b.size || (b.size && b.size->percent == 0 && b.size->bytes == old.volume->size());
    return same_size && a.devices == b.devices && a.layout == b.layout &&
           a.stripe_size == b.stripe_size && a.provision == b.provision &&
           a.page_size == b.page_size && a.clone_of == b.clone_of && a.origin == b.origin;
}

std::shared_ptr<storage::Volume> create_volume(const VolumePlan& plan, const VolumeLife& life,
                                               const storage::KeepOptions& keeping) {
    auto made =
        storage::Volume::create(plan.options, plan.devices, life.stop, keeping, plan.spills);
    if (life.stop.stop_requested()) throw std::runtime_error("cancelled: the server is stopping");
    if (const auto* error = std::get_if<storage::CapacityError>(&made)) {
        throw std::runtime_error(error_text(*error, plan.options, plan.devices));
    }
    auto volume = std::move(std::get<std::unique_ptr<storage::Volume>>(made));
    if (life.disposal == nullptr) return volume;
    return life.disposal->shared(std::move(volume));
}

void check_devices_keep(const VolumePlan& plan) {
    const auto check = [](const storage::Device& device, const char* remedy) {
        if (const std::string why = device.reason_not_kept(); !why.empty()) {
            throw std::runtime_error(fmt::format("{} cannot keep contents: {}; remove {}",
                                                 device.info().id, why, remedy));
        }
    };
    for (const storage::Device* device : plan.devices) check(*device, "keep");
    for (const storage::Spill& spill : plan.spills) {
        check(*spill.device, "keep, or that spill of its device");
    }
}

void warn_not_kept(const config::ExportOptions& options) {
    storage::LogLine(spdlog::level::warn)
        .with("export", options.name)
        .log(
            "export {}: no supervisor keeps its contents, so they end with this server; "
            "start it by gpunbd keep, or by systemd with FileDescriptorStoreMax=",
            config::in_quotes(options.name));
}

storage::OriginCache::Ahead ahead_of(config::Prefetch wanted) {
    using Ahead = storage::OriginCache::Ahead;
    switch (wanted) {
        case config::Prefetch::none:
            return Ahead::nothing;
        case config::Prefetch::sequential:
            return Ahead::sequences;
        case config::Prefetch::all:
            break;
    }
    return Ahead::all;
}

// `continues`: see OriginCache::Options.
void set_origin(storage::Volume& volume, const config::ExportOptions& exported, OriginPlan plan,
                bool continues) {
    using Writes = storage::OriginCache::Writes;
    const config::OriginOptions& wanted = exported.origin;
    storage::OriginCache::Options out{.export_name = exported.name,
                                      .claim = std::move(plan.claim),
                                      .reserve = plan.reserve,
                                      .reads_ahead = ahead_of(wanted.prefetch),
                                      .continues = continues};
    switch (wanted.mode) {
        case config::OriginMode::read_only:
            break;
        case config::OriginMode::write_through:
            out.writes = Writes::through;
            break;
        case config::OriginMode::write_back:
            out.writes = Writes::back;
            break;
    }
    volume.kept_cache().set_source(plan.origin->id_of_contents());
    const std::uint64_t memory =
        volume.pool(0).memory().slabs().config().pages * volume.page_size();
    out.max_unwritten = wanted.max_unwritten.value_or(std::min(memory / 4, out.max_unwritten));
    out.max_age = wanted.max_age;
    volume.set_source(
        std::make_unique<storage::OriginCache>(volume, std::move(plan.origin), std::move(out)));
}

// For contents that were taken over. Returns the reason why they are those of another origin, or of
// one that has changed.
std::optional<std::string> set_origin_again(storage::Volume& volume,
                                            const config::ExportOptions& options,
                                            DeviceRegistry& registry, const VolumeLife& life) {
    OriginPlan plan = plan_origin(options, registry, *volume.devices().front(), life.origin_locks);
    const storage::Origin& origin = *plan.origin;
    life.contents->check_origin(origin.name(), origin.id(), &volume);
    if (origin.size() != volume.size()) {
        return fmt::format("origin: {}: its size was {} bytes, and is {} now", origin.name(),
                           volume.size(), origin.size());
    }
    const storage::SourceId known = volume.kept_cache().source();
    if (known != storage::SourceId{} && origin.id_of_contents() != known) {
        const char* const what =
            !options.origin.nbd.empty() ? "its name or description on its server has changed"
            : options.origin.is_writable()
                ? "it is another file now"
                : "it is another file now, or another program has written to it";
        return fmt::format("origin: {}: {}", origin.name(), what);
    }
    set_origin(volume, options, std::move(plan), true);
    return std::nullopt;
}

std::shared_ptr<storage::Volume> make_volume(const config::ExportOptions& options,
                                             DeviceRegistry& registry, const VolumeLife& life) {
    // A removed export may still be writing to the same file.
    if (options.origin.is_writable() && life.disposal != nullptr) life.disposal->wait();
    VolumePlan plan = plan_volume(options, registry, {}, life.origin_locks);
    plan.options.complete = options.restore.empty();
    std::shared_ptr<storage::Volume> volume;
    const bool kept = options.keep && life.contents != nullptr;
    if (kept) {
        check_devices_keep(plan);
        volume = life.contents->make(options, [&](const storage::KeepOptions& keeping) {
            return create_volume(plan, life, keeping);
        });
    } else {
        volume = create_volume(plan, life, {.name = options.name});
    }
    const std::string size = config::human_size(plan.options.size);
    if (options.has_origin()) {
        const storage::Origin& origin = *plan.origin.origin;
        if (life.contents != nullptr) {
            life.contents->check_origin(origin.name(), origin.id(), nullptr);
        }
        set_origin(*volume, options, std::move(plan.origin), false);
    }
    const std::string name = config::in_quotes(options.name);
    if (!plan.instead_of_gpu.empty()) {
        storage::LogLine(spdlog::level::warn)
            .with("export", options.name)
            .with("error", plan.instead_of_gpu)
            .log(
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
        .log("export {}: {}{} on {}, {}, {}{}, instance {}", name, size,
             options.has_origin() ? fmt::format(" of {}, of which up to {}", options.origin.path(),
                                                config::human_size(plan.options.memory))
                                  : std::string(),
             names, options.layout == config::LayoutKind::stripe ? "stripe" : "linear",
             options.provision == config::Provision::full ? "full" : "thin", kept ? ", kept" : "",
             storage::instance_text(volume->shape().instance));
    if (options.layout == config::LayoutKind::stripe && plan.devices.size() < 2) {
        storage::LogLine(spdlog::level::warn)
            .with("export", options.name)
            .log(
                "export {}: layout: stripe has no effect on one device; add devices, or leave it "
                "out",
                name);
    }
    if (options.swap && options.provision == config::Provision::thin) {
        storage::LogLine(spdlog::level::warn)
            .with("export", options.name)
            .log(
                "export {}: it is thin: if the device has no free memory, a swapped-out page and "
                "its "
                "process are lost; remove provision",
                name);
    }
    if (options.keep && !kept) warn_not_kept(options);
    return volume;
}

// Null: it is not among those that are made already.
const Export* find_made(const ExportRegistry::Exports& exports, const std::string& name) {
    const auto found =
        std::ranges::find_if(exports, [&](const auto& each) { return each->info.name == name; });
    return found == exports.end() ? nullptr : found->get();
}

// `exports` are those that are made already.
std::shared_ptr<storage::Volume> clone_volume(const config::ExportOptions& options,
                                              const ExportRegistry::Exports& exports,
                                              const VolumeLife& life) {
    const Export* const found = find_made(exports, options.clone_of);
    if (found == nullptr) {
        throw std::runtime_error(fmt::format("clone_of: there is no export {} above it",
                                             config::in_quotes(options.clone_of)));
    }
    const Export& source = *found;
    if (source.options.origin.is_writable()) {
        throw std::runtime_error(
            "clone_of: its origin is writable; only a read-only one has clones");
    }
    if (std::string why = source.why_incomplete(); !why.empty()) throw std::runtime_error(why);
    const auto size = options.size ? std::optional(options.size->bytes) : std::nullopt;
    const bool of_cache = source.volume->cache() != nullptr;
    const auto create = [&](const storage::KeepOptions& keeping) {
        auto made = of_cache ? storage::OriginClone::make(source.volume, keeping, size)
                             : source.volume->clone(keeping, size);
        if (const auto* reason = std::get_if<std::string>(&made)) {
            throw std::runtime_error(fmt::format("it cannot be a clone of {}: {}",
                                                 config::in_quotes(options.clone_of), *reason));
        }
        auto volume = std::move(std::get<std::unique_ptr<storage::Volume>>(made));
        if (life.disposal == nullptr) return std::shared_ptr<storage::Volume>(std::move(volume));
        return life.disposal->shared(std::move(volume));
    };
    const bool kept = life.contents != nullptr && source.contents_outlive_server();
    auto volume =
        kept ? life.contents->make(options, create, of_cache ? nullptr : source.volume.get())
             : create({.name = options.name});
    storage::LogLine(spdlog::level::info)
        .with("export", options.name)
        .with("bytes", volume->size())
        .log("export {}: a clone of {}, {}{}, instance {}", config::in_quotes(options.name),
             config::in_quotes(options.clone_of), config::human_size(volume->size()),
             kept ? ", kept" : "", storage::instance_text(volume->shape().instance));
    if (options.keep && !kept) warn_not_kept(options);
    return volume;
}

// A volume that was made before, and the spill memory that its devices have in the configuration
// now.
struct SpillPlan {
    std::string name;  // of the export
    std::shared_ptr<storage::Volume> volume;
    std::vector<storage::Spill> spills;
};

SpillPlan plan_spills(const std::string& name, const std::shared_ptr<storage::Volume>& volume,
                      DeviceRegistry& devices) {
    std::vector<storage::Device*> layout = volume->devices();
    layout.resize(volume->layout_devices());
    auto spills =
        volume->source() != nullptr ? std::vector<storage::Spill>() : devices.spills_of(layout);
    return {.name = name, .volume = volume, .spills = std::move(spills)};
}

void set_spills(const SpillPlan& plan, const VolumeLife& life) {
    const auto warn = [&](const std::string& why) {
        storage::LogLine(spdlog::level::warn)
            .with("export", plan.name)
            .log("export {}: its pages cannot move to spill memory that was added: {}",
                 config::in_quotes(plan.name), why);
    };
    std::vector<storage::Spill> spills = plan.spills;
    std::erase_if(spills, [&](const storage::Spill& spill) {
        if (!plan.volume->table_descriptor()) return false;
        const std::string why = spill.device->reason_not_kept();
        if (why.empty()) return false;
        warn(fmt::format("{} cannot keep contents: {}", spill.device->info().id, why));
        return true;
    });
    try {
        std::vector<storage::Device*> added;
        const std::vector<storage::Device*> known = plan.volume->devices();
        for (const storage::Spill& spill : spills) {
            if (std::ranges::find(known, spill.device) == known.end()) {
                added.push_back(spill.device);
            }
        }
        if (!added.empty() && life.open_channels) life.open_channels(added);
        const std::string why = plan.volume->set_spills(spills);
        if (!why.empty()) warn(why);
    } catch (const std::exception& error) {  // no channel or no memory
        warn(error.what());
    }
}

void restore_contents(const config::ExportOptions& options, storage::Volume& volume,
                      const VolumeLife& life) {
    if (options.restore.empty() || life.restores_later) return;
    const std::string name = config::in_quotes(options.name);
    storage::LongWork work("restoring", fmt::format("export {}", name), volume.size(), "bytes");
    const auto why = storage::restore_image(
        options.restore, volume, life.channels, life.stop,
        [&](std::uint64_t done) { work.set_done(done); }, larger_image_for(options));
    if (why) throw std::runtime_error(fmt::format("restore: {}", *why));
    volume.set_complete();
    log_restored(options, volume);
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

// Volumes that share pages are kept together.
std::string keep_error(const Export& old, const config::ExportOptions& wanted,
                       const VolumeLife& life) {
    if (life.contents == nullptr || wanted.keep == old.options.keep) return {};
    if (!old.volume->table_descriptor() || !old.volume->shares_pages()) return {};
    return fmt::format(
        "export '{}': keep cannot change while it shares memory with a snapshot or a clone; remove "
        "that first, also from gpunbd kept",
        wanted.name);
}

// Clients and backups rely on it that a snapshot does not change.
std::string snapshot_error(const Export& old, const config::ExportOptions& wanted) {
    if (!old.options.is_snapshot() || wanted.read_only) return {};
    return fmt::format(
        "export {0}: it is a snapshot, which cannot become writable; write to a clone of it "
        "(gpunbd "
        "export clone {0} NAME)",
        config::in_quotes(wanted.name));
}

// Whether the contents cannot be made because those of the source could not be taken over, are
// being restored, or because a clone that was created at run time has outlived it. The other
// exports are made.
bool lacks_source(const config::ExportOptions& clone, const MadeExports& made) {
    if (clone.clone_of.empty()) return false;
    const Export* const source = find_made(made.exports, clone.clone_of);
    const bool is_made = source != nullptr;
    if (is_made && !source->volume->complete()) return true;
    const bool is_refused = std::ranges::any_of(
        made.refused, [&](const auto& each) { return each.name == clone.clone_of; });
    return !is_made && (is_refused || clone.provenance.run_time);
}

// The state of make_exports().
struct Making {
    DeviceRegistry& devices;
    const VolumeLife& life;
    ExportLookup earlier;
    MadeExports made = {};
    std::vector<SpillPlan> planned = {};
};

// Why an export is not made.
struct Failure {
    std::string why;
    bool only_this_one = false;  // it is refused; otherwise no export is made
};

Failure failure_of(const config::ExportOptions& wanted, const std::exception& error,
                   bool only_this_one) {
    return {fmt::format("export '{}': {}", wanted.name, error.what()), only_this_one};
}

void warn_kept_by_next_server(const std::string& name) {
    storage::LogLine(spdlog::level::warn)
        .with("export", name)
        .log(
            "export {}: its contents were made without keep and still end with this server; the "
            "next server keeps its contents",
            config::in_quotes(name));
}

// The export in use, of which only the spill memory may change.
Expected<std::shared_ptr<const Export>, Failure> unchanged_export(
    const std::shared_ptr<const Export>& used, Making& making) {
    try {
        if (!making.life.same_devices) {
            making.planned.push_back(plan_spills(used->options.name, used->volume, making.devices));
        }
        return used;
    } catch (const std::exception& error) {
        return failure_of(used->options, error, false);
    }
}

// Gives the export the volume of `kept`, or contents of an earlier server, or none.
Expected<void, Failure> give_existing_volume(Export& next, const Export* kept,
                                             const Making& making) {
    const config::ExportOptions& wanted = next.options;
    const VolumeLife& life = making.life;
    if (kept != nullptr) {
        std::string why = keep_error(*kept, wanted, life);
        if (why.empty()) why = snapshot_error(*kept, wanted);
        if (!why.empty()) return Failure{std::move(why)};
        next.volume = kept->volume;
        if (kept->info.size == next.volume->size()) next.activity = kept->activity;
        if (wanted.keep && life.contents != nullptr && !next.contents_outlive_server()) {
            warn_kept_by_next_server(wanted.name);
        }
        return {};
    }
    if (life.contents == nullptr || wanted.name == life.renewed) return {};
    try {
        next.volume = life.contents->take_over(wanted, making.devices, *life.disposal);
        return {};
    } catch (const std::exception& error) {
        return failure_of(wanted, error, true);
    }
}

// Gives a volume that was taken over its origin. If that has become another one, contents that it
// lacks are refused, and others are given up; but clients that an upgrade moves must not read other
// contents.
Expected<void, Failure> complete_origin(Export& next, Making& making) {
    const config::ExportOptions& wanted = next.options;
    if (!wanted.has_origin() || !next.volume || next.volume->source() != nullptr) return {};
    try {
        auto why = set_origin_again(*next.volume, wanted, making.devices, making.life);
        if (!why) return {};
        const std::string name = config::in_quotes(wanted.name);
        const bool lacks = next.volume->kept_cache().any_unwritten();
        if (lacks || next.volume->is_quiesced()) {
            const std::string otherwise =
                lacks ? fmt::format("give up its kept contents by gpunbd kept --drop {}", name)
                      : "restart the server instead";
            return Failure{fmt::format("export {}: {}; restore it, or {}", name, *why, otherwise),
                           true};
        }
        storage::LogLine(spdlog::level::warn)
            .with("export", wanted.name)
            .log("export {}: {}; it is read again, and the export has a new instance", name, *why);
        making.life.contents->drop(*next.volume);
        next.volume.reset();
        return {};
    } catch (const std::exception& error) {
        return failure_of(wanted, error, true);
    }
}

// Gives the clone of a cache that was taken over its source.
Expected<void, Failure> complete_clone(const Export& next, const Making& making) {
    const config::ExportOptions& wanted = next.options;
    if (!next.volume || !next.volume->kept_clone().is_clone() || next.volume->source() != nullptr) {
        return {};
    }
    const Export* const source = find_made(making.made.exports, wanted.clone_of);
    std::optional<std::string> why = "it is not served";
    if (source != nullptr) {
        why = storage::OriginClone::continue_with(*next.volume, source->volume);
    }
    if (!why) return {};
    return Failure{
        fmt::format("export {0}: it needs the export {1}, of which it is a clone: {2}; "
                    "restore that, or give up what was written to the clone by gpunbd "
                    "kept --drop {0}",
                    config::in_quotes(wanted.name), config::in_quotes(wanted.clone_of), *why),
        true};
}

// Makes a volume for the export, or plans the spill memory of that which it has.
Expected<void, Failure> complete_volume(Export& next, Making& making) {
    const config::ExportOptions& wanted = next.options;
    try {
        if (next.volume) {
            making.planned.push_back(plan_spills(wanted.name, next.volume, making.devices));
            return {};
        }
        next.volume = wanted.clone_of.empty()
                          ? make_volume(wanted, making.devices, making.life)
                          : clone_volume(wanted, making.made.exports, making.life);
        restore_contents(wanted, *next.volume, making.life);
        return {};
    } catch (const std::exception& error) {
        // A file that is missing now must not prevent the start of the server.
        const bool lacks_file =
            wanted.provenance.run_time && (!wanted.restore.empty() || wanted.has_origin());
        return failure_of(wanted, error, lacks_file || lacks_source(wanted, making.made));
    }
}

void describe(Export& next) {
    const std::string instance = storage::instance_text(next.volume->shape().instance);
    next.info = info_of(next.options);
    // The contents of an origin are the same after a restart.
    next.info.description = next.options.has_origin()
                                ? next.options.description
                                : described(next.options.description, instance);
    next.info.instance = instance;
    next.info.size = next.volume->size();
    next.info.cached = next.volume->cache() != nullptr;
}

Expected<std::shared_ptr<const Export>, Failure> make_export(const config::ExportOptions& wanted,
                                                             Making& making) {
    const VolumeLife& life = making.life;
    if (wanted.has_origin() && !wanted.origin.is_writable() && !wanted.read_only) {
        return Failure{fmt::format("export {}: its origin is read-only, so it cannot be writable",
                                   config::in_quotes(wanted.name))};
    }
    if (const auto failed = life.not_restored.find(wanted.name);
        failed != life.not_restored.end()) {
        return Failure{failed->second, true};
    }
    const bool is_renamed = life.renaming && life.renaming->to == wanted.name;
    const auto* const predecessor =
        making.earlier.find(is_renamed ? life.renaming->from : wanted.name);
    const auto* const kept =
        predecessor != nullptr && same_volume(**predecessor, wanted) ? predecessor : nullptr;
    // A resize back to the size in the options changes only the volume: contents that were taken
    // over may have had another one.
    const bool is_current = kept != nullptr && (*kept)->info.size == (*kept)->volume->size();
    if (is_current && (*kept)->options == wanted) return unchanged_export(*kept, making);
    auto next = std::make_shared<Export>();
    next->options = wanted;
    const Export* const used = kept == nullptr ? nullptr : kept->get();
    if (auto given = give_existing_volume(*next, used, making); !given) return given.error();
    if (auto completed = complete_origin(*next, making); !completed) return completed.error();
    if (auto completed = complete_clone(*next, making); !completed) return completed.error();
    const bool is_new = next->volume == nullptr;
    if (auto completed = complete_volume(*next, making); !completed) return completed.error();
    // The size was a multiple of the earlier block size.
    if (next->volume->size() % wanted.block_size.minimum != 0) {
        return Failure{fmt::format(
            "export '{}': its size of {} bytes is not a multiple of block_size.minimum ({}); keep "
            "the old minimum, or change the size as well",
            wanted.name, next->volume->size(), wanted.block_size.minimum)};
    }
    if (!next->activity) {
        next->activity =
            std::make_shared<ActivityMap>(next->volume->size(), next->volume->page_size());
    }
    if (kept != nullptr) next->earlier = held_of(*kept);
    next->access = AccessList(wanted.access);
    if (predecessor != nullptr) next->use = (*predecessor)->use;
    describe(*next);
    if (is_new && !next->volume->complete()) {
        making.made.unfilled.push_back(
            {next, next->use->close_to_others("the export is being restored")});
    }
    return next;
}

}  // namespace

void log_restored(const config::ExportOptions& options, const storage::Volume& volume) {
    const auto image = storage::image_size(options.restore);
    const auto* const size = std::get_if<std::uint64_t>(&image);
    storage::LogLine(spdlog::level::info)
        .with("export", options.name)
        .with("file", options.restore)
        .log("export {}: restored from {}{}", config::in_quotes(options.name), options.restore,
             size != nullptr && *size > volume.size()
                 ? fmt::format(": the first {} bytes of {}, since the export is smaller",
                               volume.size(), *size)
                 : std::string());
}

storage::LargerImage larger_image_for(const config::ExportOptions& options) {
    const bool has_own_size = options.size && options.size->percent == 0;
    return options.provenance.run_time && has_own_size ? storage::LargerImage::cut
                                                       : storage::LargerImage::refused;
}

MadeExports make_exports(const config::ExportList& options, DeviceRegistry& devices,
                         const ExportRegistry::Exports& current, const VolumeLife& life) {
    Making making{.devices = devices, .life = life, .earlier = ExportLookup(current)};
    MadeExports& made = making.made;
    ExportRegistry::Exports in_order(options.size());
    // Those that were created at run time come in any order, and a clone may need its source.
    for (const bool makes_clones : {false, true}) {
        auto place = in_order.begin();
        for (const config::ExportOptions& wanted : options) {
            auto& made_here = *place++;
            if (wanted.is_template() || wanted.clone_of.empty() == makes_clones) continue;
            if (auto next = make_export(wanted, making)) {
                made_here = *std::move(next);
                made.exports.push_back(made_here);
            } else if (Failure failure = next.error(); failure.only_this_one) {
                made.refused.push_back({wanted.name, std::move(failure.why)});
            } else {
                made.problems.push_back(std::move(failure.why));
            }
        }
    }
    std::erase(in_order, nullptr);
    made.exports = std::move(in_order);
    // Not if the new configuration is refused.
    if (made.problems.empty()) {
        for (const SpillPlan& each : making.planned) set_spills(each, life);
        if (life.contents != nullptr) life.contents->take_over_unused(devices, *life.disposal);
    }
    return std::move(making.made);
}

}  // namespace gpunbd::server
