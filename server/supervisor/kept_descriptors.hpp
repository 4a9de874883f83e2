#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/supervisor/descriptor_store.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

// Kept memory of a machine that swaps to it. While no server has mapped and locked it, it would be
// swapped out to the device that needs the server.
// Maps the whole file in memory of a descriptor. The mapping is locked if the process has locked
// its future mappings. Does nothing for other descriptors.
class LockedContents {
 public:
    LockedContents() = default;
    explicit LockedContents(int descriptor);
    ~LockedContents();
    LockedContents(LockedContents&& other) noexcept { swap(other); }
    LockedContents& operator=(LockedContents&& other) noexcept {
        swap(other);
        return *this;
    }

    // 0, or the errno of a file in memory that cannot be mapped.
    int error() const { return error_; }

 private:
    void swap(LockedContents& other) noexcept {
        std::swap(start_, other.start_);
        std::swap(bytes_, other.bytes_);
        std::swap(error_, other.error_);
    }

    void* start_ = nullptr;
    std::size_t bytes_ = 0;
    int error_ = 0;
};

// The descriptors that `gpunbd keep` stores, with their names. The table has a fixed size, so that
// a server cannot make it grow.
class KeptDescriptors {
 public:
    // `hold`: also locks the memory of the descriptors.
    explicit KeptDescriptors(std::size_t capacity, bool hold = false);
    KeptDescriptors(const KeptDescriptors&) = delete;
    KeptDescriptors& operator=(const KeptDescriptors&) = delete;

    // Closes a descriptor that does not fit. A file that is already stored under the name is not
    // stored twice, so a server may store again what was handed to it.
    enum class Answer { kept, there_already, full, names_full, not_held };
    Answer keep(std::string_view name, OwnedFd fd);
    // Closes all descriptors of that name and returns their number.
    std::size_t remove(std::string_view name);
    // Closes the descriptors that were stored after the first `count` ones.
    void keep_first(std::size_t count);

    std::size_t size() const { return entries_.size(); }
    std::size_t capacity() const { return capacity_; }

    // Gives the descriptors the numbers from 3 on, as LISTEN_FDS requires, and keeps them open
    // across exec. Call it only in the child that executes the next server. Returns false and sets
    // errno on failure.
    bool hand_over();
    // The names in the same order, for LISTEN_FDNAMES.
    std::string joined_names() const;

 private:
    struct Entry {
        OwnedFd fd;
        std::uint8_t length;
        std::array<char, max_descriptor_name> text;
        LockedContents memory;

        std::string_view name() const { return {text.data(), length}; }
    };

    const std::size_t capacity_;
    const bool hold_;
    std::vector<Entry> entries_;
    std::size_t names_length_ = 0;
};

}  // namespace gpunbd::server
