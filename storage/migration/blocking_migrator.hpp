// Requests to a migrator that block one thread until their result is known or another thread
// cancels them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "storage/base/mutex.hpp"
#include "storage/migration/migrator.hpp"

namespace gpunbd::storage {

class BlockingMigrator {
 public:
    // The migrator outlives this object.
    explicit BlockingMigrator(Migrator& migrator) : migrator_(migrator) {}

    // See Migrator. Empty: cancelled, or there is no memory for the request.
    std::optional<Migration> reclaim(std::uint64_t bytes) noexcept;
    std::optional<Migration> release(std::uint64_t bytes) noexcept;
    std::optional<Migration> give_up_revocable(std::uint64_t bytes) noexcept;
    // Like release(), and lifts the limit when no pages are left elsewhere.
    void return_pages(std::uint64_t bytes) noexcept;

    // From any thread: ends the present request and all later ones. Pages on their way still move.
    void cancel();

 private:
    // Outlives this object if the migrator is still working for it.
    struct Reply {
        Mutex mutex;
        Condition changed;
        std::optional<Migration> result GUARDED_BY(mutex);
        bool abandoned GUARDED_BY(mutex) = false;
    };

    using Submit = void (Migrator::*)(std::uint64_t, Migrator::Done);
    std::optional<Migration> await(Submit submit, std::uint64_t bytes) noexcept;

    Migrator& migrator_;
    Mutex mutex_;
    bool cancelled_ GUARDED_BY(mutex_) = false;
    std::shared_ptr<Reply> reply_ GUARDED_BY(mutex_);  // of the request in progress
};

}  // namespace gpunbd::storage
