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

// How soon a supervisor that takes no message is tried again.
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

void tell_end(const std::string& name, std::uint64_t size,
              RetainedContents::Clock::time_point end) {
    const auto left = std::chrono::ceil<std::chrono::seconds>(end - RetainedContents::Clock::now());
    storage::LogLine(spdlog::level::warn)
        .with("export", name)
        .with("bytes", size)
        .say(
            "export {} is not offered any more: its kept contents are given back in {} s, unless "
            "it is again before (keeping.grace)",
            config::in_quotes(name), std::max<std::int64_t>(left.count(), 0));
}

// Is there an export of that name that waits for its contents?
bool is_refused(const std::vector<RetainedContents::Offered>& offered, const std::string& name) {
    return std::any_of(offered.begin(), offered.end(), [&](const auto& each) {
        return each.name == name && each.volume == nullptr;
    });
}

void tell_taken_over(const std::string& name, const storage::Volume& volume) {
    const storage::TableShape& shape = volume.shape();
    storage::LogLine(spdlog::level::info)
        .with("export", name)
        .with("bytes", shape.size)
        .say(
            "export {}: its contents of {} are taken over from an earlier server: {} in use, on "
            "{}, instance {}",
            config::in_quotes(name), config::local_time_text(shape.made),
            config::human_size(volume.mapped_bytes()), identities(shape),
            storage::instance_text(shape.instance));
}

void tell_given_back(const std::string& name) {
    spdlog::info("kept contents of export {}: their memory is given back", config::in_quotes(name));
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

// --- what an earlier server has left ---------------------------------------------------------

RetainedContents::RetainedContents(DescriptorStore& store, InheritedDescriptors& handed_over,
                                   std::chrono::milliseconds patience, Imported imported)
    : store_(store), patience_(patience), imported_(std::move(imported)) {
    for (const std::string& name : handed_over.names()) {
        const auto parsed = parse_contents_name(name);
        if (!parsed) continue;
        Left& left = left_[parsed->id];
        if (!left.keeper) {
            left.keeper = std::make_shared<ContentsRetainer>(store_, parsed->id, patience_);
        }
        left.keeper->knows(parsed->place);
        std::vector<OwnedFd> descriptors = handed_over.take(name);
        if (descriptors.size() > 1) {
            left.ambiguous = fmt::format("the supervisor has {} descriptors under the name {}",
                                         descriptors.size(), name);
        }
        for (OwnedFd& descriptor : descriptors) {
            if (parsed->place) {
                left.slabs[parsed->place->device].emplace(parsed->place->slab,
                                                          std::move(descriptor));
                continue;
            }
            auto table = storage::PageTable::open(std::move(descriptor));
            if (auto* const why = std::get_if<std::string>(&table)) {
                left.refused = "its page table cannot be used: " + *why;
            } else {
                left.table = std::make_unique<storage::PageTable>(
                    std::move(std::get<storage::PageTable>(table)));
            }
        }
    }
    for (auto at = left_.begin(); at != left_.end();) {
        Left& left = at->second;
        if (!left.table && left.refused.empty()) {
            // A server died before the table was kept, or while its contents were given back.
            give_back(left);
            at = left.keeper->finish_removals() ? left_.erase(at) : std::next(at);
            continue;
        }
        if (!left.refused.empty()) {
            spdlog::error(
                "kept contents {}: {}; they stay until they are given up: gpunbd kept --drop {}",
                at->first, left.refused, at->first);
        }
        ++at;
    }
}

std::map<std::string, RetainedContents::Left>::iterator RetainedContents::find_left(
    const config::ExportOptions& options) {
    const std::string wanted = wanted_of(options);
    auto found = left_.end();
    for (auto at = left_.begin(); at != left_.end(); ++at) {
        const Left& left = at->second;
        if (!left.table || left.table->shape().name != options.name) continue;
        if (left.table->shape().wanted == wanted) return at;
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
        const auto found = find_left(each);
        if (found == left_.end()) continue;
        try {
            devices_of(found->second.table->shape(), each, devices);
        } catch (const std::runtime_error&) {
            // It is reported then.
        }
    }
}

std::shared_ptr<storage::Volume> RetainedContents::take_over(const config::ExportOptions& options,
                                                             DeviceRegistry& devices,
                                                             VolumeDisposal& disposal) {
    const std::lock_guard lock(mutex_);
    if (auto held = held_for(options)) return held;
    const auto found = find_left(options);
    if (found == left_.end()) return nullptr;
    Left& left = found->second;
    std::shared_ptr<storage::Volume> volume;
    try {
        const std::string wanted = wanted_of(options);
        if (left.table->shape().wanted != wanted) {
            throw std::runtime_error(fmt::format("they were made for {}, and it asks for {}",
                                                 left.table->shape().wanted, wanted));
        }
        volume = adopt(found->first, left, options, devices, disposal);
    } catch (const std::exception& error) {
        left.refused = error.what();
        throw std::runtime_error(
            fmt::format("its kept contents cannot be taken over: {}; they stay until they are "
                        "given up: gpunbd kept --drop {}",
                        error.what(), config::in_quotes(options.name)));
    }
    left_.erase(found);
    storage::log_if_possible([&] { tell_taken_over(options.name, *volume); });
    return volume;
}

std::map<std::string, RetainedContents::Own> RetainedContents::prepare_own(
    const std::string& id, const std::string& name,
    std::shared_ptr<ContentsRetainer> keeper) const {
    std::map<std::string, Own> one;
    Own& own = one[id];
    own.keeper = std::move(keeper);
    own.name = name;
    return one;
}

// Whatever can fail comes before the volume is taken over: with that its slabs begin to change, and
// what is left would not describe them any more.
std::shared_ptr<storage::Volume> RetainedContents::adopt(const std::string& id, const Left& left,
                                                         const config::ExportOptions& options,
                                                         DeviceRegistry& devices,
                                                         VolumeDisposal& disposal) {
    if (!left.ambiguous.empty()) throw std::runtime_error(left.ambiguous);
    const std::vector<storage::Device*> found = devices_of(left.table->shape(), options, devices);
    // Copies: if it cannot be done now, it may be tried again.
    storage::Volume::Descriptors slabs;
    for (const auto& [device, its] : left.slabs) {
        for (const auto& [number, descriptor] : its) {
            slabs[device].emplace(number, copy_of(descriptor));
        }
    }
    auto table = storage::PageTable::open(copy_of(left.table->descriptor()));
    if (const auto* const why = std::get_if<std::string>(&table)) throw std::runtime_error(*why);
    VolumeDisposal::Place place = disposal.reserve();
    auto prepared = prepare_own(id, options.name, left.keeper);
    const auto imported = imported_.find(id);
    auto taken = storage::Volume::take_over(
        std::move(std::get<storage::PageTable>(table)), found, std::move(slabs), left.keeper,
        resting_, imported == imported_.end() ? nullptr : imported->second.get());
    if (const auto* const why = std::get_if<std::string>(&taken)) throw std::runtime_error(*why);
    auto volume = place.share(std::move(std::get<std::unique_ptr<storage::Volume>>(taken)));
    Own& own = prepared.begin()->second;
    own.volume = volume;
    own.taken = volume;
    own.making = false;
    own_.insert(prepared.extract(prepared.begin()));
    return volume;
}

// --- what this server makes --------------------------------------------------------------------

std::shared_ptr<storage::Volume> RetainedContents::make(const config::ExportOptions& options,
                                                        const Create& create) {
    const storage::InstanceId instance = storage::new_instance();
    const std::string id = contents_id(instance);
    const auto keeper = std::make_shared<ContentsRetainer>(store_, id, patience_);
    auto prepared = prepare_own(id, options.name, keeper);
    Own& own = prepared.begin()->second;
    {
        const std::lock_guard lock(mutex_);
        own_.insert(prepared.extract(prepared.begin()));
    }
    std::shared_ptr<storage::Volume> volume;
    try {
        volume = create({.name = options.name,
                         .wanted = wanted_of(options),
                         .instance = instance,
                         .retainer = keeper});
    } catch (...) {
        keeper->forget_all();
        const std::lock_guard lock(mutex_);
        own.making = false;  // without a volume: settle() finishes it
        if (keeper->finish_removals()) own_.erase(id);
        throw;
    }
    const std::lock_guard lock(mutex_);
    own.volume = volume;
    own.making = false;
    if (resting_) volume->quiesce();
    return volume;
}

void RetainedContents::rest() {
    const std::lock_guard lock(mutex_);
    resting_ = true;
    for (auto& [unused, own] : own_) {
        if (const auto volume = own.volume.lock()) volume->quiesce();
    }
}

void RetainedContents::go_on() {
    Imported unused_imports;  // released without the lock
    const std::lock_guard lock(mutex_);
    std::swap(unused_imports, imported_);
    resting_ = false;
    for (auto& [unused, own] : own_) {
        if (const auto volume = own.volume.lock()) volume->resume();
    }
}

std::vector<RetainedContents::Copy> RetainedContents::copies() const {
    const std::lock_guard lock(mutex_);
    std::vector<Copy> all;
    for (const auto& [unused, left] : left_) {
        if (!left.table) continue;  // nobody can read it
        all.push_back({left.keeper->name_of(std::nullopt), {}, copy_of(left.table->descriptor())});
        for (const auto& [device, slabs] : left.slabs) {
            for (const auto& [number, slab] : slabs) {
                all.push_back(
                    {left.keeper->name_of(ContentsName::Place{device, number}), {}, copy_of(slab)});
            }
        }
    }
    for (const auto& [unused, own] : own_) {
        const auto volume = own.volume.lock();
        if (!volume || !own.keeper->keeps()) continue;
        all.push_back({own.keeper->name_of(std::nullopt), {}, copy_of(volume->table_descriptor())});
        for (auto& each : volume->copy_slabs()) {
            all.push_back({own.keeper->name_of(ContentsName::Place{each.device, each.copy.slab}),
                           each.copy.entry, std::move(each.copy.descriptor)});
        }
    }
    return all;
}

// --- what is offered ---------------------------------------------------------------------------

void RetainedContents::give_back(Left& left) {
    left.keeper->forget_all();
    left.table.reset();
    left.slabs.clear();
    left.ends.reset();
}

void RetainedContents::give_back(Own& own) {
    own.keeper->forget_all();
    own.held.reset();
    own.ends.reset();
}

std::optional<RetainedContents::Clock::time_point> RetainedContents::settle(
    const std::vector<Offered>& offered, std::chrono::seconds grace, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    std::optional<Clock::time_point> next;
    const auto look_again = [&next](const std::optional<Clock::time_point>& at) {
        if (at && (!next || *at < *next)) next = at;
    };
    // Entries stay until the supervisor has been told all.
    const auto is_told = [&](ContentsRetainer& keeper) {
        if (keeper.finish_removals()) return true;
        look_again(now + removal_retry);
        return false;
    };
    for (auto at = left_.begin(); at != left_.end();) {
        Left& left = at->second;
        settle(left, offered, now + grace);
        if (left.ends && *left.ends <= now) {
            const std::string name = left.table->shape().name;
            give_back(left);
            tell_given_back(name);
        }
        look_again(left.ends);
        const bool gone = is_told(*left.keeper) && !left.keeper->keeps();
        at = gone ? left_.erase(at) : std::next(at);
    }
    for (auto at = own_.begin(); at != own_.end();) {
        Own& own = at->second;
        if (!own.making) settle(own, offered, now + grace);
        const bool over = own.ends && *own.ends <= now;
        if (over) {
            give_back(own);
            tell_given_back(own.name);
        }
        look_again(own.ends);
        const bool gone = is_told(*own.keeper) && !own.making && !own.held && own.volume.expired();
        at = gone ? own_.erase(at) : std::next(at);
    }
    return next;
}

void RetainedContents::settle(Left& left, const std::vector<Offered>& offered,
                              Clock::time_point end) {
    if (!left.table) return;
    const std::string& name = left.table->shape().name;
    if (is_refused(offered, name)) {
        left.ends.reset();
    } else if (!left.ends) {
        left.ends = end;
        tell_end(name, left.table->shape().size, end);
    }
}

void RetainedContents::settle(Own& own, const std::vector<Offered>& offered,
                              Clock::time_point end) {
    const auto volume = own.volume.lock();
    own.taken.reset();
    if (!volume) {
        // New, and of a configuration that was refused after all.
        own.keeper->forget_all();
        return;
    }
    const auto user = std::find_if(offered.begin(), offered.end(),
                                   [&](const Offered& each) { return each.volume == volume; });
    if (user != offered.end()) {
        own.ends.reset();
        own.held.reset();
        if (!user->keep) own.keeper->forget_all();
    } else if (own.keeper->keeps()) {
        own.held = volume;
        if (is_refused(offered, own.name)) {
            own.ends.reset();
        } else if (!own.ends) {
            own.ends = end;
            tell_end(own.name, volume->size(), end);
        }
    }
}

// --- for people ----------------------------------------------------------------------------------

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
    for (const auto& [id, left] : left_) {
        if (!left.keeper->keeps()) continue;
        if (!left.table) {
            Summary unreadable;
            unreadable.name = id;
            unreadable.state = left.refused;
            all.push_back(std::move(unreadable));
            continue;
        }
        add(left.table->shape()).state =
            !left.refused.empty() ? left.refused : "no export has them";
    }
    for (const auto& [unused, own] : own_) {
        const auto volume = own.volume.lock();
        if (!volume || !own.keeper->keeps()) continue;
        Summary& summary = add(volume->shape());
        summary.used = volume->mapped_bytes();
        summary.state = own.held ? "no export has them" : "in use";
    }
    return all;
}

std::size_t RetainedContents::drop(const std::string& name) {
    const std::lock_guard lock(mutex_);
    std::size_t dropped = 0;
    for (auto at = left_.begin(); at != left_.end();) {
        Left& left = at->second;
        const std::string& its_name = left.table ? left.table->shape().name : at->first;
        if (its_name != name || !left.keeper->keeps()) {
            ++at;
            continue;
        }
        give_back(left);
        ++dropped;
        at = left.keeper->finish_removals() ? left_.erase(at) : std::next(at);
    }
    for (auto& [unused, own] : own_) {
        if (own.name != name || !own.held) continue;
        give_back(own);
        ++dropped;
    }
    return dropped;
}

}  // namespace gpunbd::server
