#include "storage/origins/origin_cache.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "storage/assertions/assert.hpp"
#include "storage/base/log_line.hpp"
#include "storage/pages/volume.hpp"

namespace gpunbd::storage {

void OriginCache::adopt() {
    const KeptCache left = volume_.kept_cache();
    if (!left.is_kept()) return;
    const bool is_handed_over = left.is_handed_over();
    // After a kill, they are written at once.
    const auto since = Clock::now() - (is_handed_over ? options_.max_age.zero() : options_.max_age);
    for (std::uint64_t page = 0; page != volume_.pages(); ++page) {
        if (!volume_.mapped(page)) continue;
        volume_.set_parts(page, left.usable(page));
        cached_.remember(page, true);
        const Parts unwritten = left.unwritten(page) & volume_.division().all();
        if (unwritten == 0) continue;
        data_.set(page, true);
        in_origin_.set(page, true);
        written_.adopt(page, unwritten, since);
    }
    left.set_handed_over(false);
    const std::uint64_t bytes = written_.bytes();
    if (bytes == 0 || is_handed_over) return;
    log_if_possible([&] {
        LogLine(spdlog::level::warn)
            .with("export", options_.export_name)
            .with("origin", origin_->name())
            .with("bytes", bytes)
            .log(
                "export '{}': an earlier server has left {} KiB that its origin does not have; "
                "they are written now",
                options_.export_name, (bytes + 1023) / 1024);
    });
}

void OriginCache::pause() noexcept {
    const Lock lock(mutex_);
    if (std::exchange(is_paused_, true)) return;
    // The next process has connections of its own, and a flush covers one connection only.
    has_to_flush_ = has_changed_origin_ && origin_->lock() == nullptr;
    is_flushed_ = true;
    changed_.notify_all();
}

bool OriginCache::is_paused() const {
    const Lock lock(mutex_);
    return is_paused_ && working_ == 0 && !has_requests();
}

std::optional<std::string> OriginCache::why_it_stays() const {
    if (!origin_->can_be_opened_again())
        return origin_->name() + ": its server does not offer several connections";
    const Device& device = volume_.pool(0).device();
    if (device.failed()) return device.info().id + " has failed";
    const Lock lock(mutex_);
    if (is_unsafe_ || !is_flushed_) return origin_->name() + ": it cannot be flushed; see the log";
    return std::nullopt;
}

std::optional<std::string> OriginCache::hand_over() {
    GPUNBD_ASSERT(is_paused() && volume_.is_quiesced(),
                  "the pages of a cache do not change while it is handed over");
    if (auto why = why_it_stays()) return why;
    const KeptCache table = volume_.kept_cache();
    if (!table.is_kept()) return std::nullopt;
    for (std::uint64_t page = 0; page != volume_.pages(); ++page) {
        if (!volume_.mapped(page)) continue;
        const Parts missing = volume_.missing_parts(page);
        table.set_present(page, volume_.division().all() & ~missing);
    }
    table.set_handed_over(true);
    return std::nullopt;
}

void OriginCache::resume() noexcept {
    const Lock lock(mutex_);
    is_paused_ = false;
    changed_.notify_all();
}

bool OriginCache::has_requests() const {
    return has_to_flush_ || !syncs_.empty() || !zeroes_.empty() || !rooms_.empty() ||
           !of_clones_.empty() || !held_.empty() || fetches_.are_wanted() || written_.has_urgent();
}

void OriginCache::set_draining(bool is_draining) noexcept {
    const Lock lock(mutex_);
    is_draining_ = is_draining;
    changed_.notify_all();
}

OwnedFd OriginCache::lock() const {
    const OwnedFd* const held = origin_->lock();
    if (held == nullptr) return {};
    OwnedFd copy = OwnedFd::copy_of(*held);
    if (!copy) throw std::system_error(errno, std::generic_category(), origin_->name());
    return copy;
}

}  // namespace gpunbd::storage
