#include "server/admin/api/page.hpp"

#include <algorithm>
#include <string>

#include "server/admin/api/page_files.hpp"

namespace gpunbd::server::admin {

namespace {

struct FileType {
    std::string_view ending;
    const char* type;
};
constexpr FileType file_types[] = {
    {".html", "text/html; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".svg", "image/svg+xml"},
};

constexpr const char* content_security_policy =
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' "
    "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const PageFile* file_at(std::string_view path) {
    if (!path.starts_with('/')) return nullptr;
    const std::string_view name = path == "/" ? "index.html" : path.substr(1);
    const auto files = page_files();
    const auto file = std::find_if(files.begin(), files.end(),
                                   [&](const PageFile& each) { return each.name == name; });
    return file == files.end() ? nullptr : &*file;
}

}  // namespace

bool is_page(std::string_view path) { return file_at(path) != nullptr; }

std::optional<Response> page_at(std::string_view path) {
    const PageFile* const file = file_at(path);
    if (file == nullptr) return std::nullopt;
    const auto type =
        std::find_if(std::begin(file_types), std::end(file_types),
                     [&](const FileType& each) { return file->name.ends_with(each.ending); });
    return Response{
        .status = 200,
        .content_type = type == std::end(file_types) ? "application/octet-stream" : type->type,
        .body = std::string(file->text),
        .headers = {{"Content-Security-Policy", content_security_policy}}};
}

}  // namespace gpunbd::server::admin
