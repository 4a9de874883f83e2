#include "server/contents/kept_contents.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "config/quote.hpp"
#include "config/size.hpp"
#include "server/contents/local_time_text.hpp"
#include "storage/log_line.hpp"

namespace gpunbd::server {

namespace {

OwnedFd copy_of(int descriptor) {
    const int copy = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) {
        throw std::runtime_error(
            fmt::format("a descriptor cannot be copied: {}", std::strerror(errno)));
    }
    return OwnedFd(copy);
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

void tell_end(const std::string& name, std::uint64_t size, KeptContents::Clock::time_point end) {
    const auto left = std::chrono::ceil<std::chrono::seconds>(end - KeptContents::Clock::now());
    storage::LogLine(spdlog::level::warn)
        .with("export", name)
        .with("bytes", size)
        .say(
            "export {} is not offered any more: its kept contents are given back in {} s, unless "
            "it is again before (keeping.grace)",
            config::in_quotes(name), std::max<std::int64_t>(left.count(), 0));
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

KeptContents::KeptContents(DescriptorStore& store, HandedOver& handed_over,
                           std::chrono::milliseconds patience)
    : store_(store), patience_(patience) {
    for (const std::string& name : handed_over.names()) {
        const auto parsed = parse_contents_name(name);
        if (!parsed) continue;
        Left& left = left_[parsed->id];
        left.names.push_back(name);
        for (OwnedFd& descriptor : handed_over.take(name)) {
            if (parsed->place) {
                left.slabs[parsed->place->device].emplace(parsed->place->slab,
                                                          std::move(descriptor));
                continue;
            }
            auto table = storage::PageTable::open(descriptor.release());
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
            // A server died before it had told of them, or when they were given up.
            forget(left);
            at = left_.erase(at);
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

std::map<std::string, KeptContents::Left>::iterator KeptContents::find_left(
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

std::shared_ptr<storage::Volume> KeptContents::held_for(const config::ExportOptions& options) {
    const std::string wanted = wanted_of(options);
    for (auto& [unused, own] : own_) {
        if (!own.held || own.name != options.name || own.held->shape().wanted != wanted) continue;
        own.ends.reset();
        own.taken = std::exchange(own.held, nullptr);
        return own.taken;
    }
    return nullptr;
}

void KeptContents::open_devices(const std::vector<config::ExportOptions>& exports,
                                DeviceRegistry& devices) {
    const std::lock_guard lock(mutex_);
    for (const config::ExportOptions& each : exports) {
        const auto found = find_left(each);
        if (found == left_.end()) continue;
        try {
            devices_of(found->second.table->shape(), each, devices);
        } catch (const std::runtime_error&) {
            // Told then.
        }
    }
}

std::shared_ptr<storage::Volume> KeptContents::take_over(const config::ExportOptions& options,
                                                         DeviceRegistry& devices,
                                                         VolumeDisposal& disposal) {
    const std::lock_guard lock(mutex_);
    if (auto held = held_for(options)) return held;
    const auto found = find_left(options);
    if (found == left_.end()) return nullptr;
    Left& left = found->second;
    try {
        const std::string wanted = wanted_of(options);
        if (left.table->shape().wanted != wanted) {
            throw std::runtime_error(fmt::format("they were made for {}, and it asks for {}",
                                                 left.table->shape().wanted, wanted));
        }
        auto volume = adopt(found->first, left, options, devices, disposal);
        left_.erase(found);
        return volume;
    } catch (const std::exception& error) {
        left.refused = error.what();
        throw std::runtime_error(
            fmt::format("its kept contents cannot be taken over: {}; they stay until they are "
                        "given up: gpunbd kept --drop {}",
                        error.what(), config::in_quotes(options.name)));
    }
}

std::shared_ptr<storage::Volume> KeptContents::adopt(const std::string& id, Left& left,
                                                     const config::ExportOptions& options,
                                                     DeviceRegistry& devices,
                                                     VolumeDisposal& disposal) {
    const storage::TableShape& shape = left.table->shape();
    const std::vector<storage::Device*> found = devices_of(shape, options, devices);
    // Copies: if it cannot be done now, it may be tried again.
    std::vector<std::vector<int>> slabs(found.size());
    for (const auto& [device, its] : left.slabs) {
        if (device >= found.size()) continue;
        for (const auto& [number, descriptor] : its) {
            if (number >= shape.devices[device].slabs) continue;
            slabs[device].resize(std::max<std::size_t>(slabs[device].size(), number + 1), -1);
            slabs[device][number] = copy_of(descriptor.get()).release();
        }
    }
    auto table = storage::PageTable::open(copy_of(left.table->descriptor()).release());
    if (const auto* const why = std::get_if<std::string>(&table)) throw std::runtime_error(*why);
    auto keeper = std::make_unique<ContentsKeeper>(store_, id, patience_);
    for (const std::string& name : left.names) keeper->knows(name);
    auto taken = storage::Volume::take_over(std::move(std::get<storage::PageTable>(table)), found,
                                            slabs, *keeper, resting_);
    for (const auto& its : slabs) {
        for (const int descriptor : its) OwnedFd{descriptor};
    }
    const auto* const why = std::get_if<std::string>(&taken);
    if (why != nullptr) throw std::runtime_error(*why);
    Own& own = own_[id];
    own.keeper = std::move(keeper);
    own.name = options.name;
    own.making = false;
    auto volume = disposal.shared(std::move(std::get<std::unique_ptr<storage::Volume>>(taken)));
    own.volume = volume;
    own.taken = volume;
    storage::LogLine(spdlog::level::info)
        .with("export", options.name)
        .with("bytes", shape.size)
        .say(
            "export {}: its contents of {} are taken over from an earlier server: {} in use, on "
            "{}, instance {}",
            config::in_quotes(options.name), local_time_text(shape.made),
            config::human_size(volume->mapped_bytes()), identities(shape),
            storage::instance_text(shape.instance));
    return volume;
}

void KeptContents::forget(const Left& left) {
    for (const std::string& name : left.names) {
        if (const auto wrong = store_.remove(name)) spdlog::warn("{}", *wrong);
    }
}

// --- what this server makes --------------------------------------------------------------------

std::shared_ptr<storage::Volume> KeptContents::make(const config::ExportOptions& options,
                                                    const Create& create) {
    const storage::InstanceId instance = storage::new_instance();
    const std::string id = contents_id(instance);
    ContentsKeeper* keeper = nullptr;
    {
        const std::lock_guard lock(mutex_);
        Own& own = own_[id];
        own.name = options.name;
        own.keeper = std::make_unique<ContentsKeeper>(store_, id, patience_);
        keeper = own.keeper.get();
    }
    std::shared_ptr<storage::Volume> volume;
    try {
        volume = create({.name = options.name,
                         .wanted = wanted_of(options),
                         .instance = instance,
                         .keeper = keeper});
    } catch (...) {
        keeper->forget_all();
        const std::lock_guard lock(mutex_);
        own_.erase(id);
        throw;
    }
    const std::lock_guard lock(mutex_);
    Own& own = own_[id];
    own.volume = volume;
    own.making = false;
    if (resting_) volume->rest();
    return volume;
}

void KeptContents::rest() {
    const std::lock_guard lock(mutex_);
    resting_ = true;
    for (auto& [unused, own] : own_) {
        if (const auto volume = own.volume.lock()) volume->rest();
    }
}

void KeptContents::go_on() {
    const std::lock_guard lock(mutex_);
    resting_ = false;
    for (auto& [unused, own] : own_) {
        if (const auto volume = own.volume.lock()) volume->go_on();
    }
}

std::vector<KeptContents::Copy> KeptContents::copies() const {
    const std::lock_guard lock(mutex_);
    std::vector<Copy> all;
    for (const auto& [id, left] : left_) {
        const ContentsKeeper names(store_, id, patience_);
        if (!left.table) continue;  // nobody can read it
        all.push_back({names.table_name(), copy_of(left.table->descriptor())});
        for (const auto& [device, slabs] : left.slabs) {
            for (const auto& [number, slab] : slabs) {
                all.push_back({names.slab_name(device, number), copy_of(slab.get())});
            }
        }
    }
    for (const auto& [unused, own] : own_) {
        const auto volume = own.volume.lock();
        if (!volume || !own.keeper->keeps()) continue;
        all.push_back({own.keeper->table_name(), copy_of(volume->table_descriptor())});
        for (const auto& each : volume->copy_slabs()) {
            all.push_back(
                {own.keeper->slab_name(each.device, each.slab), OwnedFd(each.descriptor)});
            if (each.descriptor < 0) throw std::runtime_error("no descriptors are left");
        }
    }
    return all;
}

void KeptContents::let_go() {
    std::vector<std::shared_ptr<storage::Volume>> held;  // they end without the lock
    const std::lock_guard lock(mutex_);
    held.reserve(2 * own_.size());
    for (auto& [unused, own] : own_) {
        held.push_back(std::exchange(own.held, nullptr));
        held.push_back(std::exchange(own.taken, nullptr));
    }
}

// --- what is offered ---------------------------------------------------------------------------

void KeptContents::give_back(Own& own) {
    own.keeper->forget_all();
    own.held.reset();
    own.ends.reset();
}

std::optional<KeptContents::Clock::time_point> KeptContents::settle(
    const std::vector<Offered>& offered, std::chrono::seconds grace, Clock::time_point now) {
    const std::lock_guard lock(mutex_);
    std::optional<Clock::time_point> next;
    const auto look_again = [&next](const std::optional<Clock::time_point>& at) {
        if (at && (!next || *at < *next)) next = at;
    };
    for (auto at = left_.begin(); at != left_.end();) {
        Left& left = at->second;
        settle(left, offered, now + grace);
        if (left.ends && *left.ends <= now) {
            forget(left);
            tell_given_back(left.table->shape().name);
            at = left_.erase(at);
            continue;
        }
        look_again(left.ends);
        ++at;
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
        // Who has it open still may have to ask its keeper.
        const bool gone = !own.making && !own.held && own.volume.expired();
        at = gone ? own_.erase(at) : std::next(at);
    }
    return next;
}

void KeptContents::settle(Left& left, const std::vector<Offered>& offered, Clock::time_point end) {
    if (!left.table) return;
    const std::string& name = left.table->shape().name;
    const bool wanted = std::any_of(offered.begin(), offered.end(), [&](const Offered& each) {
        return each.name == name && each.volume == nullptr;
    });
    if (wanted) {
        left.ends.reset();
    } else if (!left.ends) {
        left.ends = end;
        tell_end(name, left.table->shape().size, end);
    }
}

void KeptContents::settle(Own& own, const std::vector<Offered>& offered, Clock::time_point end) {
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
    } else if (!own.ends && own.keeper->keeps()) {
        own.ends = end;
        own.held = volume;
        tell_end(own.name, volume->size(), end);
    }
}

// --- for people ----------------------------------------------------------------------------------

std::vector<KeptContents::Summary> KeptContents::summaries() const {
    const std::lock_guard lock(mutex_);
    std::vector<Summary> all;
    const auto add = [&all](const storage::TableShape& shape) -> Summary& {
        all.push_back({.name = shape.name,
                       .size = shape.size,
                       .allocated = {},
                       .devices = identities(shape),
                       .made = shape.made,
                       .instance = storage::instance_text(shape.instance),
                       .state = {}});
        return all.back();
    };
    for (const auto& [id, left] : left_) {
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
        summary.allocated = volume->allocated_bytes();
        summary.state = own.held ? "no export has them" : "in use";
    }
    return all;
}

std::size_t KeptContents::drop(const std::string& name) {
    const std::lock_guard lock(mutex_);
    std::size_t dropped = 0;
    for (auto at = left_.begin(); at != left_.end();) {
        const Left& left = at->second;
        if (name != (left.table ? left.table->shape().name : at->first)) {
            ++at;
            continue;
        }
        forget(left);
        at = left_.erase(at);
        ++dropped;
    }
    for (auto& [unused, own] : own_) {
        if (own.name != name || !own.held) continue;
        give_back(own);
        ++dropped;
    }
    return dropped;
}

}  // namespace gpunbd::server
