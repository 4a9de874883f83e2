// What `gpunbd keep` keeps: descriptors and their names, in a table of a fixed size, so that no
// server makes it grow.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/supervisor/descriptor_name.hpp"
#include "server/supervisor/locked_contents.hpp"
#include "storage/base/owned_fd.hpp"

namespace gpunbd::server {

class StoredDescriptors {
 public:
    // `hold`: also the memory that they stand for.
    explicit StoredDescriptors(std::size_t capacity, bool hold = false);
    StoredDescriptors(const StoredDescriptors&) = delete;
    StoredDescriptors& operator=(const StoredDescriptors&) = delete;

    // What has no place is closed. A file that is there already under the name is not taken twice:
    // so a server may store again what it was handed.
    enum class Answer { kept, there_already, full, names_full, not_held };
    Answer keep(std::string_view name, OwnedFd fd);
    // Closes all of that name; how many they were.
    std::size_t remove(std::string_view name);

    std::size_t size() const { return entries_.size(); }
    std::size_t capacity() const { return capacity_; }

    // In the process that becomes the next server, and nowhere else: has them where LISTEN_FDS
    // says, from 3 on, open across exec. False: errno says why not.
    bool hand_over();
    // In that order, for LISTEN_FDNAMES.
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
