#include "storage/migration/blocking_migrator.hpp"

#include <new>
#include <utility>

namespace gpunbd::storage {

std::optional<Migration> BlockingMigrator::reclaim(std::uint64_t bytes) noexcept {
    return await(&Migrator::reclaim, bytes);
}

std::optional<Migration> BlockingMigrator::release(std::uint64_t bytes) noexcept {
    return await(&Migrator::release, bytes);
}

std::optional<Migration> BlockingMigrator::give_up_revocable(std::uint64_t bytes) noexcept {
    return await(&Migrator::give_up_revocable, bytes);
}

void BlockingMigrator::return_pages(std::uint64_t bytes) noexcept {
    const auto result = release(bytes);
    if (!result || !result->moved.empty() || result->no_room || result->cut_short) return;
    release(SlabBudget::unlimited);
}

void BlockingMigrator::cancel() {
    std::shared_ptr<Reply> reply;
    {
        const Lock lock(mutex_);
        cancelled_ = true;
        reply = reply_;
    }
    if (!reply) return;
    {
        const Lock lock(reply->mutex);
        reply->abandoned = true;
    }
    reply->changed.notify_all();
}

std::optional<Migration> BlockingMigrator::await(Submit submit, std::uint64_t bytes) noexcept try {
    const auto reply = std::make_shared<Reply>();
    {
        const Lock lock(mutex_);
        if (cancelled_) return std::nullopt;
        reply_ = reply;
    }
    (migrator_.*submit)(bytes, [reply](Migration&& result) {
        const Lock lock(reply->mutex);
        reply->result = std::move(result);
        reply->changed.notify_all();
    });
    const Lock lock(reply->mutex);
    while (!reply->result && !reply->abandoned) reply->changed.wait(reply->mutex);
    return std::move(reply->result);
} catch (const std::bad_alloc&) {
    return std::nullopt;
}

}  // namespace gpunbd::storage
