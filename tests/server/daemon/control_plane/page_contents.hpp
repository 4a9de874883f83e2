// What a client would write to the pages of an export, and read from them. Each page has one
// number, repeated; 0: a hole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "storage/pages/volume.hpp"

namespace gpunbd::server::test {

// A page that does not have the same number everywhere.
constexpr std::uint64_t torn_page = ~std::uint64_t{0};

void fill_page(std::span<std::byte> page, std::uint64_t contents);
// Returns false if there is no memory for the page.
bool write_page(storage::Volume& volume, std::uint64_t page, std::uint64_t contents);
std::vector<std::uint64_t> read_pages(storage::Volume& volume);

}  // namespace gpunbd::server::test
