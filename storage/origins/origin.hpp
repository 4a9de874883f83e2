#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "storage/base/origin_times.hpp"
#include "storage/base/owned_fd.hpp"
#include "storage/pages/kept_cache.hpp"

namespace gpunbd::storage {

// What provides the contents of a volume: a file, a block device, or an export of another server.
// Any thread may call these functions, several at once, also for the same bytes. Each blocks. Each
// returns an error for users, if there is one.
class Origin {
 public:
    using Error = std::optional<std::string>;

    virtual ~Origin() = default;

    virtual const std::string& name() const = 0;  // for users: a path or an address
    virtual std::uint64_t size() const = 0;       // bytes
    // The next range at or after `offset` that may have other contents than zeroes, of the time
    // when the origin was opened; empty: there is none.
    struct Extent {
        std::uint64_t begin = 0;  // bytes
        std::uint64_t end = 0;
    };
    virtual std::optional<Extent> next_data(std::uint64_t offset) const = 0;

    // Each request is timed, whether it fails or not.
    Error read(std::uint64_t offset, std::span<std::byte> to);
    // These are called only for an origin that was opened to be written to.
    Error write(std::uint64_t offset, std::span<const std::byte> from);
    // The bytes read as zeroes. `keeps_space`: the origin does not release their memory.
    Error zero(std::uint64_t offset, std::uint64_t length, bool keeps_space);
    // Whether zero() is faster than writing zeroes.
    virtual bool can_zero() const = 0;
    // What was written survives a loss of power.
    Error flush();
    const OriginTimes& times() const { return times_; }
    // After a flush that failed: whether writes before it may be lost, although they succeeded.
    virtual bool may_have_lost_writes() const = 0;
    // The descriptor that has the lock on the origin, which another process can take over with a
    // copy; null: it has no lock that excludes others.
    virtual const OwnedFd* lock() const { return nullptr; }
    // Whether another process can open it before this one closes it.
    virtual bool can_be_opened_again() const { return true; }
    virtual SourceId id() const { return {}; }
    // The same; of an origin that is not written to, it also differs if another program has changed
    // the contents, as far as that can be noticed.
    virtual SourceId id_of_contents() const { return id(); }

 protected:
    // do_zero() of an origin that has nothing better.
    Error write_zeroes(std::uint64_t offset, std::uint64_t length);

 private:
    virtual Error do_read(std::uint64_t offset, std::span<std::byte> to) = 0;
    virtual Error do_write(std::uint64_t offset, std::span<const std::byte> from) = 0;
    virtual Error do_zero(std::uint64_t offset, std::uint64_t length, bool keeps_space) = 0;
    virtual Error do_flush() = 0;

    OriginTimes times_;
};

}  // namespace gpunbd::storage
