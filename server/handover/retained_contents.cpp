#include "server/handover/retained_contents.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "config/local_time_text.hpp"
#include "config/quote.hpp"
#include "config/size.hpp"
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

std::vector<storage::Device*> devices_of(const storage::TableShape& shape,
                                         const config::ExportOptions& options,
                                         DeviceRegistry& devices) {
    std::vector<storage::Device*> found;
    for (std::size_t i = 0; i != shape.devices.size(); ++i) {
        const std::string preferred = i < options.devices.size() ? options.devices[i] : "";
        found.push_back(&devices.open_hardware(shape.devices[i].identity, preferred));
    }
    return found;
}

void log_end_of_grace(const std::string& name, std::uint64_t size,
                      RetainedContents::Clock::time_point end) {
    const auto remaining =
        std::chrono::ceil<std::chrono::seconds>(end - RetainedContents::Clock::now());
    storage::LogLine(spdlog::level::warn)
        .with("export", name)
        .with("bytes", size)
        .say(
            "export {} was removed: its kept contents will be freed in {} s (keeping.grace) unless "
            "the export is added again",
            config::in_quotes(name), std::max<std::int64_t>(remaining.count(), 0));
}

// Returns true if the configuration has an export of that name whose contents were rejected.
bool is_refused(const std::vector<RetainedContents::Offered>& offered, const std::string& name) {
    return std::any_of(offered.begin(), offered.end(), [&](const auto& each) {
        return each.name == name && each.volume == nullptr;
    });
}

void log_taken_over(const std::string& name, const storage::Volume& volume) {
    const storage::TableShape& shape = volume.shape();
    storage::LogLine(spdlog::level::info)
        .with("export", name)
        .with("bytes", shape.size)
        .say(
            "export {}: took over its contents of {} from an earlier server: {} in use, on "
            "{}, instance {}",
            config::in_quotes(name), config::local_time_text(shape.made),
            config::human_size(volume.mapped_bytes()), identities(shape),
            storage::instance_text(shape.instance));
}

void log_freed(const std::string& name) {
    spdlog::info("kept contents of export {} are freed", config::in_quotes(name));
}

}  // namespace

std::string wanted_of(const config::ExportOptions& options) {
    return fmt::format(
        "size {}, devices {}, layout {}, stripe_size {}, provision {}, page_size {}",
        options.size ? config::format_size(*options.size) : "unset",
        options.devices.empty() ? "auto" : fmt::format("{}", fmt::join(options.devices, " ")),
        options.layout == config::LayoutKind::stripe ? "stripe" : "linear", options.stripe_size,
        options.provision == config::Provision::full ? "full" : "thin", options.page_size);
}

// --- contents of an earlier server -----------------------------------------------------------

RetainedContents::RetainedContents(DescriptorStore& store, InheritedDescriptors& handed_over,
                                   std::chrono::milliseconds patience, Imported imported)
    : store_(store), patience_(patience), imported_(std::move(imported)) {
    for (const std::string& name : handed_over.names()) {
        const auto parsed = parse_contents_name(name);
        if (!parsed) continue;
        InheritedContents& inherited = inherited_[parsed->id];
        if (!inherited.retainer) {
            inherited.retainer = std::make_shared<ContentsRetainer>(store_, parsed->id, patience_);
        }
        inherited.retainer->add_stored(parsed->key);
        std::vector<OwnedFd> descriptors = handed_over.take(name);
        if (descriptors.size() > 1) {
            inherited.ambiguous = fmt::format("the supervisor has {} descriptors under the name {}",
                                              descriptors.size(), name);
        }
        for (OwnedFd& descriptor : descriptors) {
            if (parsed->key) {
                inherited.slabs[parsed->key->device].emplace(parsed->key->slab,
                                                             std::move(descriptor));
                continue;
            }
            auto table = storage::PageTable::open(std::move(descriptor));
            if (auto* const why = std::get_if<std::string>(&table)) {
                inherited.refused = "its page table cannot be used: " + *why;
            } else {
                inherited.table = std::make_unique<storage::PageTable>(
                    std::move(std::get<storage::PageTable>(table)));
            }
        }
    }
    for (auto at = inherited_.begin(); at != inherited_.end();) {
        InheritedContents& inherited = at->second;
        if (!inherited.table && inherited.refused.empty()) {
            // A server died before the table was stored, or while the contents were being freed.
            free_contents(inherited);
            at = inherited.retainer->finish_removals() ? inherited_.erase(at) : std::next(at);
            continue;
        }
        if (!inherited.refused.empty()) {
            spdlog::error("kept contents {}: {}; to free them, run gpunbd kept --drop {}",
                          at->first, inherited.refused, at->first);
        }
        ++at;
    }
}

std::map<std::string, RetainedContents::InheritedContents>::iterator
RetainedContents::find_inherited(const config::ExportOptions& options) {
    const std::string wanted = wanted_of(options);
    auto found = inherited_.end();
    for (auto at = inherited_.begin(); at != inherited_.end(); ++at) {
        const InheritedContents& inherited = at->second;
        if (!inherited.table || inherited.table->shape().name != options.name) continue;
        if (inherited.table->shape().wanted == wanted) return at;
        found = at;
    }
    return found;
}

std::shared_ptr<storage::Volume> RetainedContents::held_for(const config::ExportOptions& options) {
    const std::string wanted = wanted_of(options);
    for (auto& [unused, own] : own_) {
        // settle() may not have run since contents were taken, if the reload failed.
        const auto& volume = own.held ? own.held : own.taken;
        if (!volume || own.name != options.name || volume->shape().wanted != wanted) continue;
        own.ends.reset();
        if (own.held) own.taken = std::exchange(own.held, nullptr);
        return own.taken;
    }
    return nullptr;
}

void RetainedContents::open_devices(const std::vector<config::ExportOptions>& exports,
                                    DeviceRegistry& devices) {
    const std::lock_guard lock(mutex_);
    for (const config::ExportOptions& each : exports) {
        const auto found = find_inherited(each);
        if (found == inherited_.end()) continue;
        try {
            devices_of(found->second.table->shape(), each, devices);
        } catch (const std::runtime_error&) {
            // take_over() reports it.
        }
    }
}

std::shared_ptr<storage::Volume> RetainedContents::take_over(const config::ExportOptions& options,
                                                             DeviceRegistry& devices,
                                                             VolumeDisposal& disposal) {
    const std::lock_guard lock(mutex_);
    if (auto held = held_for(options)) return held;
    const auto found = find_inherited(options);
    if (found == inherited_.end()) return nullptr;
    InheritedContents& inherited = found->second;
    std::shared_ptr<storage::Volume> volume;
    try {
        const std::string wanted = wanted_of(options);
        if (inherited.table->shape().wanted != wanted) {
            throw std::runtime_error(fmt::format("they were made for {}, but the export has {}",
                                                 inherited.table->shape().wanted, wanted));
        }
        volume = adopt(found->first, inherited, options, devices, disposal);
    } catch (const std::exception& error) {
        inherited.refused = error.what();
        throw std::runtime_error(
            fmt::format("its kept contents cannot be taken over: {}; to free them, run "
                        "gpunbd kept --drop {}",
                        error.what(), config::in_quotes(options.name)));
    }
    inherited_.erase(found);
    storage::log_if_possible([&] { log_taken_over(options.name, *volume); });
    return volume;
}

std::map<std::string, RetainedContents::OwnContents> RetainedContents::prepare_own(
    const std::string& id, const std::string& name,
    std::shared_ptr<ContentsRetainer> retainer) const {
    std::map<std::string, OwnContents> one;
    OwnContents& own = one[id];
    own.retainer = std::move(retainer);
    own.name = name;
    return one;
}

// All steps that can fail precede Volume::take_over(), which changes the slabs: then the inherited
// data would not describe them any more.
std::shared_ptr<storage::Volume> RetainedContents::adopt(const std::string& id,
                                                         const InheritedContents& inherited,
                                                         const config::ExportOptions& options,
                                                         DeviceRegistry& devices,
                                                         VolumeDisposal& disposal) {
    if (!inherited.ambiguous.empty()) throw std::runtime_error(inherited.ambiguous);
    const std::vector<storage::Device*> found =
        devices_of(inherited.table->shape(), options, devices);
    // Copies, so that a later attempt is possible after a failure.
    storage::Volume::Descriptors slabs;
    for (const auto& [device, its] : inherited.slabs) {
        for (const auto& [number, descriptor] : its) {
            slabs[device].emplace(number, copy_of(descriptor));
        }
    }
    auto table = storage::PageTable::open(copy_of(inherited.table->descriptor()));
    if (const auto* const why = std::get_if<std::string>(&table)) throw std::runtime_error(*why);
    VolumeDisposal::Reservation reservation = disposal.reserve();
    auto prepared = prepare_own(id, options.name, inherited.retainer);
    const auto imported = imported_.find(id);
    auto taken = storage::Volume::take_over(
        std::move(std::get<storage::PageTable>(table)), found, std::move(slabs), inherited.retainer,
        quiesced_, imported == imported_.end() ? nullptr : imported->second.get());
    if (const auto* const why = std::get_if<std::string>(&taken)) throw std::runtime_error(*why);
    auto volume = reservation.share(std::move(std::get<std::unique_ptr<storage::Volume>>(taken)));
    OwnContents& own = prepared.begin()->second;
    own.volume = volume;
    own.taken = volume;
    own.making = false;
    own_.insert(prepared.extract(prepared.begin()));
    return volume;
}

// --- contents of this server -------------------------------------------------------------------

std::shared_ptr<storage::Volume> RetainedContents::make(const config::ExportOptions& options,
                                                        const Create& create) {
    const storage::InstanceId instance = storage::new_instance();
    const std::string id = contents_id(instance);
    const auto retainer = std::make_shared<ContentsRetainer>(store_, id, patience_);
    auto prepared = prepare_own(id, options.name, retainer);
    OwnContents& own = prepared.begin()->second;
    {
        const std::lock_guard lock(mutex_);
        own_.insert(prepared.extract(prepared.begin()));
    }
    std::shared_ptr<storage::Volume> volume;
    try {
        volume = create({.name = options.name,
                         .wanted = wanted_of(options),
                         .instance = instance,
                         .retainer = retainer});
    } catch (...) {
        retainer->forget_all();
        const std::lock_guard lock(mutex_);
        own.making = false;  // without a volume: settle() removes it
        if (retainer->finish_removals()) own_.erase(id);
        throw;
    }
    const std::lock_guard lock(mutex_);
    own.volume = volume;
    own.making = false;
    if (quiesced_) volume->quiesce();
    return volume;
}

void RetainedContents::quiesce() {
    const std::lock_guard lock(mutex_);
    quiesced_ = true;
    for (auto& [unused, own] : own_) {
        if (const auto volume = own.volume.lock()) volume->quiesce();
    }
}

void RetainedContents::resume() {
    Imported unused_imports;  // destroyed after the lock is released
    const std::lock_guard lock(mutex_);
    std::swap(unused_imports, imported_);
    quiesced_ = false;
    for (auto& [unused, own] : own_) {
        if (const auto volume = own.volume.lock()) volume->resume();
    }
}

std::vector<RetainedContents::Copy> RetainedContents::copies() const {
    const std::lock_guard lock(mutex_);
    std::vector<Copy> all;
    for (const auto& [unused, inherited] : inherited_) {
        if (!inherited.table) continue;  // unreadable
        all.push_back({inherited.retainer->name_of(std::nullopt),
                       {},
                       copy_of(inherited.table->descriptor())});
        for (const auto& [device, slabs] : inherited.slabs) {
            for (const auto& [number, slab] : slabs) {
                all.push_back({inherited.retainer->name_of(ContentsName::SlabKey{device, number}),
                               {},
                               copy_of(slab)});
            }
        }
    }
    for (const auto& [unused, own] : own_) {
        const auto volume = own.volume.lock();
        if (!volume || !own.retainer->keeps()) continue;
        all.push_back(
            {own.retainer->name_of(std::nullopt), {}, copy_of(volume->table_descriptor())});
        for (auto& each : volume->copy_slabs()) {
            all.push_back(
                {own.retainer->name_of(ContentsName::SlabKey{each.device, each.copy.slab}),
                 each.copy.entry, std::move(each.copy.descriptor)});
        }
    }
    return all;
}

// --- offered exports ---------------------------------------------------------------------------

void RetainedContents::free_contents(InheritedContents& inherited) {
    inherited.retainer->forget_all();
    inherited.table.reset();
    inherited.slabs.clear();
    inherited.ends.reset();
}

void RetainedContents::free_contents(OwnContents& own) {
    own.retainer->forget_all();
    own.held.reset();
    own.ends.reset();
}

std::optional<RetainedContents::Clock::time_point> RetainedContents::settle(
    const std::vector<Offered>& offered, std::chrono::seconds grace, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    std::optional<Clock::time_point> next;
    const auto call_again_at = [&next](const std::optional<Clock::time_point>& at) {
        if (at && (!next || *at < *next)) next = at;
    };
    // An entry stays until the supervisor has removed all its parts.
    const auto is_removed = [&](ContentsRetainer& retainer) {
        if (retainer.finish_removals()) return true;
        call_again_at(now + removal_retry);
        return false;
    };
    for (auto at = inherited_.begin(); at != inherited_.end();) {
        InheritedContents& inherited = at->second;
        settle(inherited, offered, now + grace);
        if (inherited.ends && *inherited.ends <= now) {
            const std::string name = inherited.table->shape().name;
            free_contents(inherited);
            log_freed(name);
        }
        call_again_at(inherited.ends);
        const bool gone = is_removed(*inherited.retainer) && !inherited.retainer->keeps();
        at = gone ? inherited_.erase(at) : std::next(at);
    }
    for (auto at = own_.begin(); at != own_.end();) {
        OwnContents& own = at->second;
        if (!own.making) settle(own, offered, now + grace);
        const bool over = own.ends && *own.ends <= now;
        if (over) {
            free_contents(own);
            log_freed(own.name);
        }
        call_again_at(own.ends);
        const bool gone =
            is_removed(*own.retainer) && !own.making && !own.held && own.volume.expired();
        at = gone ? own_.erase(at) : std::next(at);
    }
    return next;
}

void RetainedContents::settle(InheritedContents& inherited, const std::vector<Offered>& offered,
                              Clock::time_point end) {
    if (!inherited.table) return;
    const std::string& name = inherited.table->shape().name;
    if (is_refused(offered, name)) {
        inherited.ends.reset();
    } else if (!inherited.ends) {
        inherited.ends = end;
        log_end_of_grace(name, inherited.table->shape().size, end);
    }
}

void RetainedContents::settle(OwnContents& own, const std::vector<Offered>& offered,
                              Clock::time_point end) {
    const auto volume = own.volume.lock();
    own.taken.reset();
    if (!volume) {
        // New contents of a configuration that was rejected.
        own.retainer->forget_all();
        return;
    }
    const auto user = std::find_if(offered.begin(), offered.end(),
                                   [&](const Offered& each) { return each.volume == volume; });
    if (user != offered.end()) {
        own.ends.reset();
        own.held.reset();
        if (!user->keep) own.retainer->forget_all();
    } else if (own.retainer->keeps()) {
        own.held = volume;
        if (is_refused(offered, own.name)) {
            own.ends.reset();
        } else if (!own.ends) {
            own.ends = end;
            log_end_of_grace(own.name, volume->size(), end);
        }
    }
}

// --- summaries -----------------------------------------------------------------------------------

std::vector<RetainedContents::Summary> RetainedContents::summaries() const {
    const std::lock_guard lock(mutex_);
    std::vector<Summary> all;
    const auto add = [&all](const storage::TableShape& shape) -> Summary& {
        all.push_back({.name = shape.name,
                       .size = shape.size,
                       .used = {},
                       .devices = identities(shape),
                       .made = shape.made,
                       .instance = storage::instance_text(shape.instance),
                       .state = {}});
        return all.back();
    };
    for (const auto& [id, inherited] : inherited_) {
        if (!inherited.retainer->keeps()) continue;
        if (!inherited.table) {
            Summary unreadable;
            unreadable.name = id;
            unreadable.state = inherited.refused;
            all.push_back(std::move(unreadable));
            continue;
        }
        add(inherited.table->shape()).state =
            !inherited.refused.empty() ? inherited.refused : "no export has them";
    }
    for (const auto& [unused, own] : own_) {
        const auto volume = own.volume.lock();
        if (!volume || !own.retainer->keeps()) continue;
        Summary& summary = add(volume->shape());
        summary.used = volume->mapped_bytes();
        summary.state = own.held ? "no export has them" : "in use";
    }
    return all;
}

std::size_t RetainedContents::drop(const std::string& name) {
    const std::lock_guard lock(mutex_);
    std::size_t dropped = 0;
    for (auto at = inherited_.begin(); at != inherited_.end();) {
        InheritedContents& inherited = at->second;
        const std::string& its_name = inherited.table ? inherited.table->shape().name : at->first;
        if (its_name != name || !inherited.retainer->keeps()) {
            ++at;
            continue;
        }
        free_contents(inherited);
        ++dropped;
        at = inherited.retainer->finish_removals() ? inherited_.erase(at) : std::next(at);
    }
    for (auto& [unused, own] : own_) {
        if (own.name != name || !own.held) continue;
        free_contents(own);
        ++dropped;
    }
    return dropped;
}

}  // namespace gpunbd::server
