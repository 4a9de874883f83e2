// The names under which the supervisor has the parts of kept contents. ID is the beginning of the
// id of the first of the volumes that share pages, CLONE that of another one:
// gpunbd/ID/table, gpunbd/ID/table/CLONE, gpunbd/ID/slabs and gpunbd/ID/DEVICE/SLAB.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "storage/pages/page_table.hpp"

namespace gpunbd::server {

struct ContentsPart {
    // In the order in which they are removed: slabs without a table are not taken over.
    enum class Kind : std::uint8_t { table, directory, slab };
    Kind kind = Kind::table;
    std::string clone = {};  // of a table; empty: the first volume
    std::uint32_t device = 0;
    std::uint32_t slab = 0;
    auto operator<=>(const ContentsPart&) const = default;

    static ContentsPart table_of(std::string clone) {
        return {.kind = Kind::table, .clone = std::move(clone)};
    }
    static ContentsPart slab_of(std::uint32_t device, std::uint32_t slab) {
        return {.kind = Kind::slab, .device = device, .slab = slab};
    }
};

struct ContentsName {
    std::string id;
    ContentsPart part;
};
std::string contents_name(std::string_view id, const ContentsPart& part);
std::optional<ContentsName> parse_contents_name(std::string_view name);
std::string contents_id(const storage::InstanceId& instance);

}  // namespace gpunbd::server
