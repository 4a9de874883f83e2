// Memory that slabs were promised and the system has not allocated yet. The system allocates a page
// when it is first touched, and kills the process if there is none left. So no memory may be
// promised twice.
#pragma once

#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "storage/base/mutex.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::storage {

class PromisedMemory {
 public:
    struct Promise : boost::intrusive::list_base_hook<> {
        std::uint64_t bytes = 0;
        std::byte* at = nullptr;  // null: not mapped yet
        std::optional<int> file;  // the memory file, which the slab owns; none: private memory
        std::uint64_t owed = 0;   // bytes at most, when last checked
    };

    PromisedMemory();
    PromisedMemory(const PromisedMemory&) = delete;
    PromisedMemory& operator=(const PromisedMemory&) = delete;

    // All functions may be called from any thread. make() returns false if too many of the
    // available bytes are already promised.
    bool make(Promise& promise, std::uint64_t bytes, std::uint64_t available);
    void mapped(Promise& promise, std::byte* at, const OwnedFd& file);
    // For memory that another process has mapped and partly used. Succeeds even if the remainder is
    // not available.
    void take_over(Promise& promise, std::uint64_t bytes, std::byte* at, const OwnedFd& file);
    // The system has allocated all of it, permanently.
    void given(Promise& promise);
    void drop(Promise& promise);
    // A part has been returned to the system and is owed again.
    void discarded(Promise& promise, std::uint64_t bytes);

    // The most bytes that are owed.
    std::uint64_t owed() const;
    // Checks how much of one promise has been allocated. The next call checks the next promise.
    void check_next();
    std::size_t promises() const;

 private:
    void add(Promise& promise, std::uint64_t bytes) REQUIRES(mutex_);
    void check(Promise& promise) REQUIRES(mutex_);
    void set_owed(Promise& promise, std::uint64_t bytes) REQUIRES(mutex_);

    // Empty: allocated private memory cannot be determined, so all of it counts as owed.
    const OwnedFd pagemap_;
    mutable Mutex mutex_;
    // With bytes owed; the front is checked next.
    boost::intrusive::list<Promise> promises_ GUARDED_BY(mutex_);
    boost::intrusive::list<Promise> given_ GUARDED_BY(mutex_);
    std::uint64_t owed_ GUARDED_BY(mutex_) = 0;
};

}  // namespace gpunbd::storage
