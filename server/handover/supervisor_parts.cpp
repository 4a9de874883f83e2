#include "server/handover/supervisor_parts.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <limits>
#include <new>
#include <utility>

#include "server/base/process.hpp"
#include "server/supervisor/descriptor_store.hpp"
#include "storage/base/log_line.hpp"

namespace gpunbd::server {

namespace {

constexpr std::size_t id_digits = 12;
constexpr std::string_view table_name = "table";
constexpr std::string_view directory_name = "slabs";

std::optional<std::uint32_t> number(std::string_view digits) {
    const auto value = decimal(digits);
    if (!value || *value > std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
    return static_cast<std::uint32_t>(*value);
}

bool is_id(std::string_view text) {
    return text.size() == id_digits &&
           text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::string contents_id(const storage::InstanceId& instance) {
    return storage::instance_text(instance).substr(0, id_digits);
}

std::string contents_name(std::string_view id, const ContentsPart& part) {
    switch (part.kind) {
        case ContentsPart::Kind::directory:
            return fmt::format("{}{}/{}", own_prefix, id, directory_name);
        case ContentsPart::Kind::slab:
            return fmt::format("{}{}/{}/{}", own_prefix, id, part.device, part.slab);
        case ContentsPart::Kind::table:
            break;
    }
    return fmt::format("{}{}/{}{}{}", own_prefix, id, table_name, part.clone.empty() ? "" : "/",
                       part.clone);
}

std::optional<ContentsName> parse_contents_name(std::string_view name) {
    if (!name.starts_with(own_prefix)) return std::nullopt;
    name.remove_prefix(own_prefix.size());
    const std::size_t slash = name.find('/');
    if (slash == std::string_view::npos || !is_id(name.substr(0, slash))) return std::nullopt;
    ContentsName parsed{.id = std::string(name.substr(0, slash)), .part = {}};
    name.remove_prefix(slash + 1);
    if (name == table_name) return parsed;
    if (name == directory_name) {
        parsed.part.kind = ContentsPart::Kind::directory;
        return parsed;
    }
    const std::size_t second = name.find('/');
    if (second == std::string_view::npos) return std::nullopt;
    const std::string_view before = name.substr(0, second);
    const std::string_view after = name.substr(second + 1);
    if (before == table_name) {
        if (!is_id(after)) return std::nullopt;
        parsed.part.clone = after;
        return parsed;
    }
    const auto device = number(before);
    const auto slab = number(after);
    if (!device || !slab) return std::nullopt;
    parsed.part = ContentsPart::slab_of(*device, *slab);
    return parsed;
}

void SupervisorParts::add_volume(const std::string& clone) {
    const Lock lock(mutex_);
    volumes_.insert(clone);
}

void SupervisorParts::drop_volume(const std::string& clone) noexcept {
    const Lock lock(mutex_);
    volumes_.erase(clone);
    for (auto& [part, state] : parts_) {
        const bool is_its_table = part.kind == ContentsPart::Kind::table && part.clone == clone;
        if (volumes_.empty() || is_its_table) state = State::removing;
    }
    remove_pending();
}

void SupervisorParts::add_kept(const ContentsPart& part) {
    const Lock lock(mutex_);
    parts_.emplace(part, State::kept);
}

bool SupervisorParts::keep(const ContentsPart& part, const OwnedFd& descriptor) noexcept {
    try {
        const Lock lock(mutex_);
        if (volumes_.empty()) return true;  // a volume in use that is not kept any more
        if (const auto same = parts_.find(part); same != parts_.end()) {
            same->second = State::removing;
        }
        if (!remove_pending() && parts_.contains(part)) return false;
        parts_.emplace(part, State::kept);
        const std::string name = name_of(part);
        auto wrong = store_.store(name, descriptor.get());
        // Without this confirmation the slab may not be kept, and data written to it could be lost.
        if (!wrong) wrong = store_.barrier(patience_);
        if (!wrong) return true;
        spdlog::error("contents cannot be kept beyond the end of this server: {}", *wrong);
    } catch (const std::bad_alloc&) {
        storage::log_if_possible([] {
            spdlog::error("contents cannot be kept beyond the end of this server: no memory");
        });
    }
    return false;
}

void SupervisorParts::drop(const ContentsPart& part) noexcept {
    const Lock lock(mutex_);
    const auto found = parts_.find(part);
    if (found != parts_.end()) found->second = State::removing;
    remove_pending();
}

bool SupervisorParts::finish_removals() noexcept {
    if (!removals_pending_) return true;
    const Lock lock(mutex_);
    return remove_pending();
}

// Stops at the first failure, because the later removals would fail and wait as well.
bool SupervisorParts::remove_pending() noexcept {
    removals_pending_ = true;
    try {
        for (auto at = parts_.begin(); at != parts_.end();) {
            if (at->second == State::kept) {
                ++at;
                continue;
            }
            if (const auto wrong = store_.remove(name_of(at->first))) {
                report_pending(*wrong);
                return false;
            }
            at = parts_.erase(at);
        }
    } catch (const std::bad_alloc&) {
        report_pending("no memory");
        return false;
    }
    removals_pending_ = false;
    pending_reported_ = false;
    return true;
}

void SupervisorParts::report_pending(std::string_view why) noexcept {
    if (std::exchange(pending_reported_, true)) return;
    storage::log_if_possible([&] {
        spdlog::warn(
            "the supervisor cannot be notified to free kept memory; this will be retried: {}", why);
    });
}

}  // namespace gpunbd::server
