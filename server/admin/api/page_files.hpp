// The files of server/admin/page, compiled into the program.
#pragma once

#include <span>
#include <string_view>

namespace gpunbd::server::admin {

struct PageFile {
    std::string_view name;  // "index.html"
    std::string_view text;
};
std::span<const PageFile> page_files();

}  // namespace gpunbd::server::admin
