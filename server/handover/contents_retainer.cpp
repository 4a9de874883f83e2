#include "server/handover/contents_retainer.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <limits>
#include <new>
#include <utility>

#include "server/base/environment.hpp"
#include "server/supervisor/descriptor_name.hpp"
#include "storage/base/log_line.hpp"

namespace gpunbd::server {

namespace {

constexpr std::size_t id_digits = 12;

std::optional<std::uint32_t> number(std::string_view digits) {
    const auto value = decimal(digits);
    if (!value || *value > std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
    return static_cast<std::uint32_t>(*value);
}

}  // namespace

std::string contents_id(const storage::InstanceId& instance) {
    return storage::instance_text(instance).substr(0, id_digits);
}

std::optional<ContentsName> parse_contents_name(std::string_view name) {
    if (!name.starts_with(own_prefix)) return std::nullopt;
    name.remove_prefix(own_prefix.size());
    const std::size_t slash = name.find('/');
    if (slash != id_digits || name.find_first_not_of("0123456789abcdef") != id_digits) {
        return std::nullopt;
    }
    ContentsName parsed{.id = std::string(name.substr(0, slash)), .key = {}};
    name.remove_prefix(slash + 1);
    if (name == "table") return parsed;
    const std::size_t second = name.find('/');
    if (second == std::string_view::npos) return std::nullopt;
    const auto device = number(name.substr(0, second));
    const auto slab = number(name.substr(second + 1));
    if (!device || !slab) return std::nullopt;
    parsed.key = {.device = *device, .slab = *slab};
    return parsed;
}

std::string ContentsRetainer::name_of(const Part& part) const {
    return part ? fmt::format("{}{}/{}/{}", own_prefix, id_, part->device, part->slab)
                : fmt::format("{}{}/table", own_prefix, id_);
}

bool ContentsRetainer::keep_table(const OwnedFd& descriptor) noexcept {
    return give(std::nullopt, descriptor);
}

bool ContentsRetainer::keep(std::uint32_t device, std::uint32_t slab,
                            const OwnedFd& descriptor) noexcept {
    return give(ContentsName::SlabKey{device, slab}, descriptor);
}

bool ContentsRetainer::give(const Part& part, const OwnedFd& descriptor) noexcept {
    try {
        const std::lock_guard lock(mutex_);
        if (forgotten_) return true;  // the volume stays in use without being kept
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

void ContentsRetainer::forget(std::uint32_t device, std::uint32_t slab) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = parts_.find(ContentsName::SlabKey{device, slab});
    if (found != parts_.end()) found->second = State::removing;
    remove_pending();
}

void ContentsRetainer::forget_all() noexcept {
    const std::lock_guard lock(mutex_);
    forgotten_ = true;
    for (auto& [unused, state] : parts_) state = State::removing;
    remove_pending();
}

bool ContentsRetainer::finish_removals() noexcept {
    if (!removals_pending_) return true;
    const std::lock_guard lock(mutex_);
    return remove_pending();
}

// Stops at the first failure, because the later removals would fail and wait as well.
bool ContentsRetainer::remove_pending() noexcept {
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

void ContentsRetainer::report_pending(std::string_view why) noexcept {
    if (std::exchange(pending_reported_, true)) return;
    storage::log_if_possible([&] {
        spdlog::warn(
            "the supervisor cannot be notified to free kept memory; this will be retried: {}", why);
    });
}

}  // namespace gpunbd::server
