#include "server/handover/kept_contents.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "config/quote.hpp"
#include "config/size.hpp"
#include "config/text_layout.hpp"
#include "storage/assertions/assert.hpp"
#include "storage/base/log_line.hpp"

namespace gpunbd::server {

namespace {

// The interval for retrying messages that the supervisor did not accept.
constexpr auto removal_retry = std::chrono::seconds(1);

OwnedFd copy_of(const OwnedFd& descriptor) {
    OwnedFd copy = OwnedFd::copy_of(descriptor);
    if (!copy) {
        throw std::runtime_error(
            fmt::format("a descriptor cannot be copied: {}", std::strerror(errno)));
    }
    return copy;
}

std::string identities(const storage::TableShape& shape) {
    std::string text;
    for (const auto& device : shape.devices) {
        text += (text.empty() ? "" : ", ") + device.identity;
    }
    return text;
}

// The devices of kept contents: of the layout, and then of the spill memory, also of that in the
// directory, which may be null.
struct ContentsDevices {
    std::vector<storage::Device*> layout;
    std::vector<storage::Spill> spills;
};

ContentsDevices devices_of(const storage::TableShape& shape,
                           const storage::SharedDirectory* directory,
                           const config::ExportOptions& options, DeviceRegistry& devices) {
    ContentsDevices found;
    for (std::size_t i = 0; i != shape.layout_devices(); ++i) {
        const std::string preferred = i < options.devices.size() ? options.devices[i] : "";
        found.layout.push_back(&devices.open_hardware(shape.devices[i].identity, preferred));
    }
    std::vector<storage::TableShape::DeviceShare> spills(
        shape.devices.begin() + shape.layout_devices(), shape.devices.end());
    if (directory != nullptr) {
        for (auto& each : directory->added()) spills.push_back(std::move(each));
    }
    for (const storage::TableShape::DeviceShare& each : spills) {
        if (each.home >= found.layout.size()) {
            throw std::runtime_error("their slab directory is for another layout");
        }
        storage::Device& device = devices.open_hardware(each.identity, "");
        found.spills.push_back({.home = each.home,
                                .device = &device,
                                .budget = &devices.spill_budget(*found.layout[each.home], device)});
    }
    return found;
}

void log_end_of_grace(const std::string& name, std::uint64_t size,
                      KeptContents::Clock::time_point end) {
    const auto remaining =
        std::chrono::ceil<std::chrono::seconds>(end - KeptContents::Clock::now());
    storage::LogLine(spdlog::level::warn)
        .with("export", name)
        .with("bytes", size)
        .log(
            "export {} was removed: its kept contents will be freed in {} s (keeping.grace) unless "
            "the export is added again",
            config::in_quotes(name), std::max<std::int64_t>(remaining.count(), 0));
}

void log_incomplete(const storage::PageTable& table) {
    const std::string name = table.name();
    storage::LogLine(spdlog::level::warn)
        .with("export", name)
        .log(
            "export {}: an earlier server ended while it restored the contents: what there is of "
            "them is freed, and the export gets new contents",
            config::in_quotes(name));
}

void log_taken_over(const std::string& name, const storage::Volume& volume) {
    const storage::TableShape& shape = volume.shape();
    storage::LogLine(spdlog::level::info)
        .with("export", name)
        .with("bytes", volume.size())
        .log(
            "export {}: took over its contents of {} from an earlier server: {} in use, on "
            "{}, instance {}",
            config::in_quotes(name), config::local_time_text(shape.made),
            config::human_size(volume.mapped_bytes()), identities(shape),
            storage::instance_text(shape.instance));
}

// The rest of wanted_of().
std::string_view without_size(std::string_view wanted) {
    return wanted.substr(std::min(wanted.find(", "), wanted.size()));
}

// At the end of wanted_of(). Contents of a clone can become a snapshot, and not the reverse.
constexpr std::string_view of_snapshot = ", read_only";

// Whether contents were made for these options. Resized ones are also those of an export with their
// size now, or with the size that it had in the configuration when they were resized. `contents`: a
// page table or a volume.
bool suits(const auto& contents, const config::ExportOptions& options) {
    const std::string wanted = wanted_of(options);
    const std::string& made_for = contents.shape().wanted;
    if (made_for == wanted || fmt::format("{}{}", made_for, of_snapshot) == wanted) return true;
    if (!options.size || options.size->percent != 0) return false;
    const std::uint64_t size = options.size->bytes;
    const std::string_view made = without_size(made_for);
    const std::string_view needed = without_size(wanted);
    return (size == contents.size() || size == contents.configured_size()) &&
           (made == needed || fmt::format("{}{}", made, of_snapshot) == needed);
}

// Throws if the contents were made for other options.
void check_wanted(const auto& contents, const config::ExportOptions& options) {
    if (suits(contents, options)) return;
    const std::uint64_t size = contents.size();
    const bool is_resized = size != contents.shape().size;
    throw std::runtime_error(fmt::format(
        "they were made for {}{}, but the export has {}", contents.shape().wanted,
        is_resized ? fmt::format(" and resized to {}", config::format_size({.bytes = size})) : "",
        wanted_of(options)));
}

// In wanted_of().
std::string origin_in_wanted(const std::string& name) {
    return fmt::format(", origin {}, cache ", config::in_quotes(name));
}

// Whether they have changes that the origin of this name and id lacks.
bool has_changes_for(const auto& contents, const std::string& name, const storage::SourceId& id) {
    if (!contents.kept_cache().any_unwritten()) return false;
    constexpr storage::SourceId unknown{};
    const storage::SourceId known = contents.kept_cache().source();
    if (known != unknown && id != unknown) return known == id;
    return contents.shape().wanted.find(origin_in_wanted(name)) != std::string::npos;
}

// Whether other contents may take their place: an origin has everything.
bool is_replaceable(const storage::KeptCache& cache) {
    return cache.is_kept() && !cache.any_unwritten();
}

std::string state_of(const std::string& refused, bool has_unwritten) {
    const std::string why = refused.empty() ? "no export has them" : refused;
    return has_unwritten ? why + "; their origin lacks some of them" : why;
}

void log_unwritten(const std::string& name) {
    storage::LogLine(spdlog::level::warn)
        .with("export", name)
        .log(
            "kept contents of export {0}: their origin lacks some of them, and no export has them; "
            "they stay until export {0} is served again, or until gpunbd kept --drop {0}",
            config::in_quotes(name));
}

void log_freed(const std::string& name) {
    spdlog::info("kept contents of export {} are freed", config::in_quotes(name));
}

std::string_view text_of(config::OriginMode mode) {
    switch (mode) {
        case config::OriginMode::write_through:
            return "write-through";
        case config::OriginMode::write_back:
            return "write-back";
        case config::OriginMode::read_only:
            break;
    }
    return "read-only";
}

std::string origin_wanted_of(const config::ExportOptions& options) {
    if (!options.has_origin()) return {};
    const config::OriginOptions& origin = options.origin;
    return fmt::format("{}{}, {}", origin_in_wanted(origin.path()),
                       origin.cache ? config::format_size({.bytes = *origin.cache}) : "unset",
                       text_of(origin.mode));
}

}  // namespace

std::string wanted_of(const config::ExportOptions& options) {
    return fmt::format(
        "size {}, devices {}, layout {}, stripe_size {}, provision {}, page_size {}{}{}{}",
        options.size ? config::format_size(*options.size) : "unset",
        options.devices.empty() ? "auto" : fmt::format("{}", fmt::join(options.devices, " ")),
        options.layout == config::LayoutKind::stripe ? "stripe" : "linear", options.stripe_size,
        options.provision == config::Provision::full ? "full" : "thin", options.page_size,
        options.clone_of.empty() ? "" : ", clone_of " + config::in_quotes(options.clone_of),
        origin_wanted_of(options), options.is_snapshot() ? of_snapshot : "");
}

// --- contents of an earlier server -----------------------------------------------------------

KeptContents::KeptContents(DescriptorStore& store, PassedDescriptors& handed_over,
                           std::chrono::milliseconds patience, Imported imported)
    : store_(store), patience_(patience), imported_(std::move(imported)) {
    std::map<std::string, std::vector<ContentsPart>> parts;  // by id
    for (const std::string& name : handed_over.names()) {
        if (auto parsed = parse_contents_name(name)) {
            parts[parsed->id].push_back(std::move(parsed->part));
        }
    }
    for (const auto& [id, its] : parts) add_earlier(id, handed_over, its);
}

void KeptContents::add_earlier(const std::string& id, PassedDescriptors& handed_over,
                               const std::vector<ContentsPart>& parts) {
    const auto kept = std::make_shared<SupervisorParts>(store_, id, patience_);
    const auto shared = std::make_shared<SharedParts>();
    Earlier tables;
    for (const ContentsPart& part : parts) {
        kept->add_kept(part);
        const std::string name = kept->name_of(part);
        std::vector<OwnedFd> descriptors = handed_over.take(name);
        if (descriptors.size() > 1) {
            shared->unusable = fmt::format("the supervisor has {} descriptors under the name {}",
                                           descriptors.size(), name);
        }
        for (OwnedFd& descriptor : descriptors) {
            if (part.kind == ContentsPart::Kind::slab) {
                shared->slabs[part.device].emplace(part.slab, std::move(descriptor));
            } else if (part.kind == ContentsPart::Kind::directory) {
                auto directory = storage::SharedDirectory::open(std::move(descriptor));
                if (auto* const why = std::get_if<std::string>(&directory)) {
                    shared->unusable = "their slab directory cannot be used: " + *why;
                } else {
                    shared->directory = std::make_shared<storage::SharedDirectory>(
                        std::get<storage::SharedDirectory>(std::move(directory)));
                }
            } else {
                EarlierContents& earlier = tables[part.clone.empty() ? id : part.clone];
                earlier.kept_parts = std::make_shared<VolumeParts>(kept, part.clone);
                earlier.parts = shared;
                auto table = storage::PageTable::open(std::move(descriptor));
                if (auto* const why = std::get_if<std::string>(&table)) {
                    earlier.refused = "its page table cannot be used: " + *why;
                } else {
                    earlier.table = std::make_unique<storage::PageTable>(
                        std::move(std::get<storage::PageTable>(table)));
                }
            }
        }
    }
    const Lock lock(mutex_);
    for (auto& [unused, earlier] : tables) {
        if (!earlier.table || earlier.table->complete()) continue;
        log_incomplete(*earlier.table);
        incomplete_.insert(earlier.table->name());
        drop_contents(earlier);
    }
    if (tables.empty()) {
        // A server died before the table was stored, or while the contents were being freed.
        EarlierContents& rest = tables[id];
        rest.kept_parts = std::make_shared<VolumeParts>(kept, "");
        drop_contents(rest);
        if (kept->finish_removals()) return;
    }
    for (const auto& [its_id, earlier] : tables) {
        if (earlier.refused.empty()) continue;
        spdlog::error("kept contents {}: {}; to free them, run gpunbd kept --drop {}", its_id,
                      earlier.refused, its_id);
    }
    earlier_.merge(tables);
}

void KeptContents::finish_renames(const config::ExportList& exports) {
    const Lock lock(mutex_);
    for (const config::ExportOptions& each : exports) {
        const std::string& instance = each.provenance.renamed_contents;
        if (instance.empty()) continue;
        for (auto& [unused, earlier] : earlier_) {
            storage::PageTable* const table = earlier.table.get();
            if (table == nullptr || table->name() == each.name ||
                storage::instance_text(table->shape().instance) != instance) {
                continue;
            }
            const std::string from = table->name();
            if (!table->set_name(each.name)) {
                earlier.refused =
                    fmt::format("their name is not changed: {}", std::strerror(errno));
                continue;
            }
            storage::LogLine(spdlog::level::info)
                .with("export", each.name)
                .log("export {}: its contents had the name {} when an earlier server ended",
                     config::in_quotes(each.name), config::in_quotes(from));
        }
    }
}

KeptContents::Earlier::iterator KeptContents::find_earlier(const config::ExportOptions& options) {
    auto found = earlier_.end();
    for (auto at = earlier_.begin(); at != earlier_.end(); ++at) {
        const EarlierContents& earlier = at->second;
        if (!earlier.table || earlier.table->name() != options.name) continue;
        if (suits(*earlier.table, options)) return at;
        found = at;
    }
    return found;
}

std::shared_ptr<storage::Volume> KeptContents::held_for(const config::ExportOptions& options) {
    for (auto& [unused, own] : own_) {
        // settle() may not have run since contents were taken, if the reload failed.
        const bool is_free = own.without_export() || std::holds_alternative<Taken>(own.state);
        if (!is_free || own.name != options.name) continue;
        auto volume = own.volume();
        if (!suits(*volume, options)) continue;
        if (volume->cache() != nullptr) volume->cache()->set_draining(false);
        if (own.without_export() && own.without_export()->is_unclaimed) {
            storage::log_if_possible([&] { log_taken_over(options.name, *volume); });
        }
        own.state = Taken{volume};
        return volume;
    }
    return nullptr;
}

void KeptContents::open_devices(const config::ExportList& exports, DeviceRegistry& devices) {
    const Lock lock(mutex_);
    for (const config::ExportOptions& each : exports) {
        const auto found = find_earlier(each);
        if (found == earlier_.end()) continue;
        try {
            const EarlierContents& contents = found->second;
            devices_of(contents.table->shape(), contents.parts->directory.get(), each, devices);
        } catch (const std::runtime_error&) {
            // take_over() reports it.
        }
    }
}

std::shared_ptr<storage::Volume> KeptContents::take_over(const config::ExportOptions& options,
                                                         DeviceRegistry& devices,
                                                         VolumeDisposal& disposal) {
    try {
        const Lock lock(mutex_);
        return find_contents(options, devices, disposal);
    } catch (const std::exception& error) {
        throw std::runtime_error(
            fmt::format("its kept contents cannot be taken over: {}; to free them, run "
                        "gpunbd kept --drop {}",
                        error.what(), config::in_quotes(options.name)));
    }
}

std::shared_ptr<storage::Volume> KeptContents::find_contents(const config::ExportOptions& options,
                                                             DeviceRegistry& devices,
                                                             VolumeDisposal& disposal) {
    if (incomplete_.contains(options.name)) return nullptr;
    if (auto held = held_for(options)) return held;
    const auto found = find_earlier(options);
    const bool suitable = found != earlier_.end() && suits(*found->second.table, options);
    // Contents of a removed export do not prevent a new export of its name that has contents
    // already or has no keep.
    if (!suitable && !options.keep) return nullptr;
    for (auto& [unused, own] : own_) {
        WithoutExport* const contents = own.without_export();
        if (suitable || !contents || !contents->is_unclaimed || own.name != options.name) continue;
        if (is_replaceable(contents->volume->kept_cache())) {
            drop_contents(own);
            continue;
        }
        try {
            check_wanted(*contents->volume, options);
        } catch (const std::exception& error) {
            contents->refused = error.what();
            throw;
        }
    }
    if (found == earlier_.end()) return nullptr;
    if (!suitable && is_replaceable(found->second.table->kept_cache())) {
        drop_contents(found->second);  // settle() removes the entry
        return nullptr;
    }
    try {
        check_wanted(*found->second.table, options);
        return take_over(found, options, devices, disposal);
    } catch (const std::exception& error) {
        found->second.refused = error.what();
        throw;
    }
}

std::map<std::string, KeptContents::OwnContents> KeptContents::prepare_own(
    const std::string& id, const std::string& name, std::shared_ptr<VolumeParts> kept_parts) const {
    std::map<std::string, OwnContents> one;
    OwnContents& own = one[id];
    own.kept_parts = std::move(kept_parts);
    own.name = name;
    return one;
}

// All steps that can fail precede Volume::take_over(), which changes the slabs: then the earlier
// data would not describe them any more.
std::shared_ptr<storage::Volume> KeptContents::take_over(const Earlier::iterator& found,
                                                         const config::ExportOptions& options,
                                                         DeviceRegistry& devices,
                                                         VolumeDisposal& disposal,
                                                         bool for_export) {
    GPUNBD_ASSERT(found->second.table, "contents with an unreadable page table are never wanted");
    const std::shared_ptr<SharedParts> parts = found->second.parts;
    if (!parts->unusable.empty()) throw std::runtime_error(parts->unusable);
    const storage::TableShape& shape = found->second.table->shape();
    const ContentsDevices opened = devices_of(shape, parts->directory.get(), options, devices);
    // Copies, so that a later attempt is possible after a failure.
    storage::KeptVolumes contents{.directory = parts->directory};
    for (const auto& [device, its] : parts->slabs) {
        for (const auto& [number, descriptor] : its) {
            contents.slabs[device].emplace(number, copy_of(descriptor));
        }
    }
    std::vector<Earlier::iterator> members;
    std::vector<VolumeDisposal::Reservation> reservations;
    std::map<std::string, OwnContents> prepared;
    for (auto at = earlier_.begin(); at != earlier_.end(); ++at) {
        const EarlierContents& each = at->second;
        if (each.parts != parts) continue;
        if (each.table == nullptr) {
            throw std::runtime_error(
                fmt::format("they share pages with the contents {}: {}", at->first, each.refused));
        }
        auto table = storage::PageTable::open(copy_of(each.table->descriptor()));
        if (const auto* const why = std::get_if<std::string>(&table)) {
            throw std::runtime_error(*why);
        }
        contents.members.push_back(
            {std::move(std::get<storage::PageTable>(table)), each.kept_parts});
        members.push_back(at);
        reservations.push_back(disposal.reserve());
        prepared.merge(prepare_own(at->first, each.table->name(), each.kept_parts));
    }
    const auto imported = imported_.find(found->second.kept_parts->shared()->id());
    auto taken = storage::Volume::take_over(
        std::move(contents), opened.layout, quiesced_,
        imported == imported_.end() ? nullptr : imported->second.get(), opened.spills);
    if (const auto* const why = std::get_if<std::string>(&taken)) throw std::runtime_error(*why);
    std::shared_ptr<storage::Volume> volume;
    GPUNBD_ASSERT(std::get<storage::Volume::Volumes>(taken).size() == members.size(),
                  "contents that share pages are taken over together");
    for (std::size_t i = 0; i != members.size(); ++i) {
        auto own = prepared.extract(members[i]->first);
        auto its_volume =
            reservations[i].share(std::move(std::get<storage::Volume::Volumes>(taken)[i]));
        if (members[i] == found) volume = its_volume;
        if (for_export && members[i] == found) {
            own.mapped().state = Taken{std::move(its_volume)};
        } else {
            own.mapped().state = WithoutExport{.volume = std::move(its_volume),
                                               .is_unclaimed = true,
                                               .refused = std::move(members[i]->second.refused)};
        }
        own_.insert(std::move(own));
    }
    GPUNBD_ASSERT(volume && prepared.empty(), "all members are contents of this server now");
    if (for_export) storage::log_if_possible([&] { log_taken_over(options.name, *volume); });
    for (const auto& each : members) earlier_.erase(each);
    return volume;
}

void KeptContents::take_over_unused(DeviceRegistry& devices, VolumeDisposal& disposal) {
    const Lock lock(mutex_);
    const auto is_left = [](const auto& each) {
        return each.second.table != nullptr && !each.second.unusable;
    };
    for (;;) {  // take_over() removes all that share pages
        const auto at = std::ranges::find_if(earlier_, is_left);
        if (at == earlier_.end()) return;
        try {
            const auto volume = take_over(at, {}, devices, disposal, false);
            if (volume->kept_cache().any_unwritten()) {
                storage::log_if_possible([&] { log_unwritten(volume->name()); });
            }
        } catch (const std::exception& error) {
            at->second.unusable = true;
            if (at->second.refused.empty()) at->second.refused = error.what();
        }
    }
}

// --- contents of this server -------------------------------------------------------------------

std::shared_ptr<storage::Volume> KeptContents::OwnContents::volume() const {
    if (const auto* const in_use = std::get_if<InUse>(&state)) return in_use->volume.lock();
    if (const auto* const taken = std::get_if<Taken>(&state)) return taken->volume;
    return without_export() ? without_export()->volume : nullptr;
}

std::shared_ptr<SupervisorParts> KeptContents::parts_of(const storage::Volume& volume) const {
    const Lock lock(mutex_);
    for (const auto& [unused, own] : own_) {
        if (own.volume().get() == &volume) return own.kept_parts->shared();
    }
    throw std::runtime_error("the contents of its source are not kept");
}

std::shared_ptr<storage::Volume> KeptContents::make(const config::ExportOptions& options,
                                                    const Create& create,
                                                    const storage::Volume* source) {
    if (source != nullptr || !options.restore.empty()) {
        const Lock lock(mutex_);
        // A clone changes the page table of its source, which another process uses, and a quiesced
        // volume gets no pages for a file.
        if (quiesced_) {
            throw std::runtime_error(fmt::format(
                "a kept export with {} cannot be added by an upgrade; add it by a reload (SIGHUP) "
                "afterwards",
                source != nullptr ? "clone_of" : "restore"));
        }
    }
    const storage::InstanceId instance = storage::new_instance();
    const std::string id = contents_id(instance);
    auto kept = source == nullptr ? std::make_shared<SupervisorParts>(store_, id, patience_)
                                  : parts_of(*source);
    const auto kept_parts =
        std::make_shared<VolumeParts>(std::move(kept), source == nullptr ? "" : id);
    auto prepared = prepare_own(id, options.name, kept_parts);
    OwnContents& own = prepared.begin()->second;
    {
        const Lock lock(mutex_);
        own_.insert(prepared.extract(prepared.begin()));
    }
    std::shared_ptr<storage::Volume> volume;
    try {
        volume = create({.name = options.name,
                         .wanted = wanted_of(options),
                         .instance = instance,
                         .kept_parts = kept_parts});
    } catch (...) {
        kept_parts->drop_volume();
        const Lock lock(mutex_);
        GPUNBD_ASSERT(!own.is_made(), "settle() leaves contents alone while they are being made");
        own.state = InUse{};  // without a volume: settle() removes it
        if (kept_parts->shared()->finish_removals()) own_.erase(id);
        throw;
    }
    const Lock lock(mutex_);
    GPUNBD_ASSERT(!own.is_made(), "settle() leaves contents alone while they are being made");
    own.state = InUse{volume};
    if (quiesced_) volume->quiesce();
    return volume;
}

template <typename Call>
void KeptContents::for_each_cache(Call call) const {
    const Lock lock(mutex_);
    for (const auto& [unused, own] : own_) {
        const auto volume = own.volume();
        if (volume && volume->cache() != nullptr) call(*volume->cache());
    }
}

void KeptContents::pause_caches() {
    for_each_cache([](storage::PageCache& each) { each.pause(); });
}

bool KeptContents::caches_paused() const {
    bool all = true;
    for_each_cache([&](const storage::PageCache& each) { all = all && each.is_paused(); });
    return all;
}

std::optional<std::string> KeptContents::hand_over_caches() {
    std::optional<std::string> why;
    for_each_cache([&](storage::PageCache& each) {
        if (!why) why = each.hand_over();
    });
    return why;
}

void KeptContents::check_origin(const std::string& origin, const storage::SourceId& id,
                                const storage::Volume* own) const {
    const auto refuse = [&](const std::string& name) {
        throw std::runtime_error(fmt::format(
            "origin: {}: kept contents of export {} have changes that it lacks; serve that export "
            "again, or give them up by gpunbd kept --drop {}",
            origin, config::in_quotes(name), config::in_quotes(name)));
    };
    const Lock lock(mutex_);
    for (const auto& [unused, earlier] : earlier_) {
        if (earlier.table && has_changes_for(*earlier.table, origin, id))
            refuse(earlier.table->name());
    }
    for (const auto& [unused, each] : own_) {
        const auto volume = each.volume();
        if (!volume || volume.get() == own || volume->cache() != nullptr) continue;
        if (has_changes_for(*volume, origin, id)) refuse(each.name);
    }
}

std::map<std::string, OwnedFd> KeptContents::origin_locks() const {
    std::map<std::string, OwnedFd> all;
    for_each_cache([&](const storage::PageCache& each) {
        if (OwnedFd lock = each.lock()) all.emplace(each.name(), std::move(lock));
    });
    return all;
}

void KeptContents::quiesce() {
    const Lock lock(mutex_);
    quiesced_ = true;
    for (auto& [unused, own] : own_) {
        if (const auto volume = own.volume()) volume->quiesce();
    }
}

void KeptContents::resume() {
    Imported unused_imports;  // destroyed after the lock is released
    const Lock lock(mutex_);
    std::swap(unused_imports, imported_);
    quiesced_ = false;
    for (auto& [unused, own] : own_) {
        if (const auto volume = own.volume()) volume->resume();
    }
}

std::vector<KeptContents::Copy> KeptContents::copies() const {
    const Lock lock(mutex_);
    std::vector<Copy> all;
    std::set<const SupervisorParts*> complete;  // those of which all shared parts are in `all`
    const auto add_directory = [&all](const SupervisorParts& kept,
                                      const storage::SharedDirectory* directory) {
        if (directory == nullptr) return;
        all.push_back({kept.name_of({.kind = ContentsPart::Kind::directory}),
                       {},
                       copy_of(directory->descriptor())});
    };
    for (const auto& [unused, earlier] : earlier_) {
        if (!earlier.table) continue;  // unreadable
        all.push_back({earlier.kept_parts->table_name(), {}, copy_of(earlier.table->descriptor())});
        const SupervisorParts& kept = *earlier.kept_parts->shared();
        if (!complete.insert(&kept).second) continue;
        add_directory(kept, earlier.parts->directory.get());
        for (const auto& [device, slabs] : earlier.parts->slabs) {
            for (const auto& [number, slab] : slabs) {
                all.push_back(
                    {kept.name_of(ContentsPart::slab_of(device, number)), {}, copy_of(slab)});
            }
        }
    }
    for (const auto& [unused, own] : own_) {
        const auto volume = own.volume();
        if (!volume || !own.kept_parts->keeps()) continue;
        all.push_back({own.kept_parts->table_name(), {}, copy_of(volume->table_descriptor())});
        const SupervisorParts& kept = *own.kept_parts->shared();
        if (!complete.insert(&kept).second) continue;
        add_directory(kept, volume->shared_directory().get());
        for (auto& each : volume->copy_slabs()) {
            all.push_back({kept.name_of(ContentsPart::slab_of(each.device, each.copy.slab)),
                           each.copy.entry, std::move(each.copy.descriptor)});
        }
    }
    return all;
}

// --- offered exports ---------------------------------------------------------------------------

void KeptContents::drop_contents(EarlierContents& earlier) {
    GPUNBD_ASSERT(earlier.kept_parts, "every entry has kept parts, also unreadable ones");
    earlier.kept_parts->drop_volume();
    earlier.table.reset();
    earlier.parts.reset();
    earlier.ends.reset();
}

void KeptContents::drop_contents(OwnContents& own) {
    GPUNBD_ASSERT(own.without_export(), "only contents that no export has are freed");
    own.kept_parts->drop_volume();
    own.state = InUse{own.volume()};
}

std::optional<KeptContents::Clock::time_point> KeptContents::settle(
    const std::vector<Offered>& offered, std::chrono::seconds grace, Clock::time_point now) {
    Users users;
    for (const Offered& each : offered) {
        if (each.volume) {
            users.by_volume.emplace(each.volume.get(), &each);
        } else {
            users.refused.insert(each.name);
        }
    }
    const Lock lock(mutex_);
    incomplete_.clear();
    std::optional<Clock::time_point> next;
    const auto call_again_at = [&next](const std::optional<Clock::time_point>& at) {
        if (at && (!next || *at < *next)) next = at;
    };
    // An entry stays until the supervisor has removed all its parts.
    const auto is_removed = [&](VolumeParts& kept_parts) {
        if (kept_parts.shared()->finish_removals()) return true;
        call_again_at(now + removal_retry);
        return false;
    };
    for (auto at = earlier_.begin(); at != earlier_.end();) {
        EarlierContents& earlier = at->second;
        settle(earlier, users, now + grace);
        if (earlier.ends && *earlier.ends <= now) {
            const std::string name = earlier.table->name();
            drop_contents(earlier);
            log_freed(name);
        }
        call_again_at(earlier.ends);
        const bool gone = is_removed(*earlier.kept_parts) && !earlier.kept_parts->keeps();
        at = gone ? earlier_.erase(at) : std::next(at);
    }
    for (auto at = own_.begin(); at != own_.end();) {
        OwnContents& own = at->second;
        if (own.is_made()) settle(own, users, now, grace);
        if (const WithoutExport* const contents = own.without_export()) {
            if (contents->ends && *contents->ends <= now) {
                if (contents->volume->kept_cache().any_unwritten()) {
                    call_again_at(now + removal_retry);
                } else {
                    drop_contents(own);
                    log_freed(own.name);
                }
            } else {
                call_again_at(contents->ends);
            }
        }
        const bool gone = is_removed(*own.kept_parts) && own.is_made() && !own.volume();
        at = gone ? own_.erase(at) : std::next(at);
    }
    list_unused();
    return next;
}

void KeptContents::settle(EarlierContents& earlier, const Users& users, Clock::time_point end) {
    if (!earlier.table) return;
    const std::string name = earlier.table->name();
    if (users.refused.contains(name) || earlier.table->kept_cache().any_unwritten()) {
        earlier.ends.reset();
    } else if (!earlier.ends) {
        earlier.ends = end;
        log_end_of_grace(name, earlier.table->size(), end);
    }
}

void KeptContents::settle(OwnContents& own, const Users& users, Clock::time_point now,
                          std::chrono::seconds grace) {
    GPUNBD_ASSERT(own.is_made(), "make() itself ends the state Making");
    const auto volume = own.volume();
    const auto user = users.by_volume.find(volume.get());
    const bool is_used = user != users.by_volume.end();
    // No volume: new contents of a configuration that was rejected.
    if (!volume || (is_used ? !user->second->keep : !volume->complete())) {
        own.kept_parts->drop_volume();
    }
    if (!volume || is_used || !own.kept_parts->keeps()) {
        own.state = InUse{volume};
        return;
    }
    if (!own.without_export()) own.state = WithoutExport{.volume = volume};
    auto& ends = own.without_export()->ends;
    if (volume->cache() != nullptr) {
        // It is not needed any more once the origin has everything.
        volume->cache()->set_draining(true);
        ends = now;
    } else if (users.refused.contains(own.name) || volume->kept_cache().any_unwritten()) {
        ends.reset();
    } else if (!ends) {
        ends = now + grace;
        log_end_of_grace(own.name, volume->size(), now + grace);
    }
}

// --- summaries -----------------------------------------------------------------------------------

std::vector<KeptContents::Summary> KeptContents::summaries() const {
    const Lock lock(mutex_);
    std::vector<Summary> all;
    // `contents`: a page table or a volume.
    const auto add = [&all](const auto& contents) -> Summary& {
        const storage::TableShape& shape = contents.shape();
        all.push_back({.name = contents.name(),
                       .size = contents.size(),
                       .used = {},
                       .devices = identities(shape),
                       .made = shape.made,
                       .instance = storage::instance_text(shape.instance),
                       .state = {}});
        return all.back();
    };
    for (const auto& [id, earlier] : earlier_) {
        if (!earlier.kept_parts->keeps()) continue;
        if (!earlier.table) {
            Summary unreadable;
            unreadable.name = id;
            unreadable.state = earlier.refused;
            all.push_back(std::move(unreadable));
            continue;
        }
        add(*earlier.table).state =
            state_of(earlier.refused, earlier.table->kept_cache().any_unwritten());
    }
    for (const auto& [unused, own] : own_) {
        const auto volume = own.volume();
        if (!volume || !own.kept_parts->keeps()) continue;
        Summary& summary = add(*volume);
        summary.used = volume->mapped_bytes();
        summary.state = own.without_export()  ? state_of(own.without_export()->refused,
                                                         volume->kept_cache().any_unwritten())
                        : !volume->complete() ? "being restored"
                                              : "in use";
    }
    return all;
}

std::size_t KeptContents::drop(const std::string& name) {
    const Lock lock(mutex_);
    std::size_t dropped = 0;
    for (auto at = earlier_.begin(); at != earlier_.end();) {
        EarlierContents& earlier = at->second;
        const std::string its_name = earlier.table ? earlier.table->name() : at->first;
        if (its_name != name || !earlier.kept_parts->keeps()) {
            ++at;
            continue;
        }
        drop_contents(earlier);
        ++dropped;
        at = earlier.kept_parts->shared()->finish_removals() ? earlier_.erase(at) : std::next(at);
    }
    for (auto& [unused, own] : own_) {
        if (own.name != name || !own.without_export()) continue;
        drop_contents(own);
        ++dropped;
    }
    list_unused();
    return dropped;
}

Expected<void> KeptContents::prepare_rename(storage::Volume& volume,
                                            const std::string& name) const {
    if (!volume.can_rename()) {
        return fmt::format(
            "its contents were made by an earlier gpunbd, and keep their name; create {} by gpunbd "
            "export clone, and remove this export",
            config::in_quotes(name));
    }
    const Lock lock(mutex_);
    const bool is_earlier = std::ranges::any_of(earlier_, [&](const auto& each) {
        const EarlierContents& its = each.second;
        return its.table != nullptr && its.kept_parts->keeps() && its.table->name() == name;
    });
    const bool is_own = std::ranges::any_of(own_, [&](const auto& each) {
        const OwnContents& its = each.second;
        return its.name == name && its.kept_parts->keeps() && its.volume();
    });
    if (is_earlier || is_own) {
        return fmt::format(
            "contents of a removed export are kept under the name {0}; free them by gpunbd kept "
            "--drop {0}, or choose another name",
            config::in_quotes(name));
    }
    if (volume.prepare_name(name)) return {};
    return fmt::format("no memory for its name: {}", std::strerror(errno));
}

void KeptContents::rename(storage::Volume& volume, const std::string& name) {
    const Lock lock(mutex_);
    for (auto& [unused, own] : own_) {
        if (own.volume().get() == &volume) own.name = name;
    }
    if (volume.set_name(name)) return;
    // The next server does this, because the options have the id of the contents.
    spdlog::error("kept contents {}: their name is not changed: {}",
                  storage::instance_text(volume.shape().instance), std::strerror(errno));
}

void KeptContents::drop(const storage::Volume& volume) {
    const Lock lock(mutex_);
    for (auto& [unused, own] : own_) {
        if (own.volume().get() != &volume) continue;
        if (volume.cache() == nullptr || !volume.kept_cache().any_unwritten())
            own.kept_parts->drop_volume();
    }
}

// --- contents without an export ------------------------------------------------------------------

void KeptContents::list_unused() {
    std::vector<Unused> all;
    for (const auto& [id, earlier] : earlier_) {
        if (!earlier.kept_parts->keeps()) continue;
        const bool readable = earlier.table != nullptr;
        all.push_back({.name = readable ? earlier.table->name() : id,
                       .size = readable ? earlier.table->size() : 0,
                       .volume = {},
                       .state = state_of(earlier.refused,
                                         readable && earlier.table->kept_cache().any_unwritten()),
                       .ends = earlier.ends});
    }
    for (const auto& [unused, own] : own_) {
        const WithoutExport* const contents = own.without_export();
        if (!contents) continue;
        all.push_back(
            {.name = own.name,
             .size = contents->volume->size(),
             .volume = contents->volume,
             .state = state_of(contents->refused, contents->volume->kept_cache().any_unwritten()),
             .ends = contents->ends});
    }
    const Lock lock(unused_mutex_);
    unused_ = std::move(all);
}

std::vector<KeptContents::Unused> KeptContents::unused() const {
    const Lock lock(unused_mutex_);
    return unused_;
}

bool KeptContents::drop_unused(const storage::Device& device) {
    const Lock lock(mutex_);
    OwnContents* first = nullptr;
    for (auto& [unused, own] : own_) {
        const WithoutExport* const contents = own.without_export();
        // Memory that others still use would not be freed.
        if (!contents || !contents->ends || contents->volume.use_count() > 1) continue;
        if (contents->volume->kept_cache().any_unwritten()) continue;
        if (first != nullptr && *first->without_export()->ends <= *contents->ends) continue;
        for (std::uint32_t i = 0; i != contents->volume->pools(); ++i) {
            const storage::PagePool& pool = contents->volume->pool(i);
            if (&pool.device() == &device && pool.memory().usage().allocated != 0) first = &own;
        }
    }
    if (first == nullptr) return false;
    storage::log_if_possible([&] {
        storage::LogLine(spdlog::level::warn)
            .with("export", first->name)
            .with("device", device.info().id)
            .log(
                "kept contents of export {} are freed before their time, because memory of {} is "
                "given back and no export has them",
                config::in_quotes(first->name), device.info().id);
    });
    drop_contents(*first);
    list_unused();
    return true;
}

}  // namespace gpunbd::server
