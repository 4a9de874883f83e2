// Memory that slabs have been promised and that the system still owes: it gives a page only when
// that is touched, and ends the process where it has none left then. So nothing may be promised
// twice.
#pragma once

#include <boost/intrusive/list.hpp>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace gpunbd::storage {

class PromisedMemory {
 public:
    struct Promise : boost::intrusive::list_base_hook<> {
        std::uint64_t bytes = 0;
        std::byte* at = nullptr;  // null: not mapped yet
        int descriptor = -1;      // of the memory file that is mapped there; -1: private memory
        std::uint64_t owed = 0;   // bytes at most, as of the last look
    };

    PromisedMemory();
    ~PromisedMemory();
    PromisedMemory(const PromisedMemory&) = delete;
    PromisedMemory& operator=(const PromisedMemory&) = delete;

    // Any thread may call these. false: of the bytes available others have been promised too many.
    bool make(Promise& promise, std::uint64_t bytes, std::uint64_t available);
    void mapped(Promise& promise, std::byte* at, int descriptor);
    // Made and mapped by another process, which has been given some of it; more than that is owed
    // however little is available.
    void take_over(Promise& promise, std::uint64_t bytes, std::byte* at, int descriptor);
    // All of it has been given, and stays.
    void given(Promise& promise);
    void drop(Promise& promise);
    // A part of it has gone back to the system, and is owed again.
    void discarded(Promise& promise, std::uint64_t bytes);

    // Bytes owed, at most.
    std::uint64_t owed() const;
    // Looks at one promise, in turn, how much of it has been given meanwhile.
    void look();
    std::size_t promises() const;

 private:
    void add(Promise& promise, std::uint64_t bytes);
    void look_at(Promise& promise);
    void set_owed(Promise& promise, std::uint64_t bytes);

    const int
        pagemap_;  // -1: what private memory has been given cannot be seen, and counts as owed
    mutable std::mutex mutex_;
    boost::intrusive::list<Promise> promises_;  // that are owed anything; the next to look at first
    boost::intrusive::list<Promise> given_;
    std::uint64_t owed_ = 0;
};

}  // namespace gpunbd::storage
