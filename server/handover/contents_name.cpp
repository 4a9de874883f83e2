#include "server/handover/contents_name.hpp"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "server/base/environment.hpp"
#include "server/supervisor/descriptor_name.hpp"

namespace gpunbd::server {

namespace {

constexpr std::size_t id_digits = 12;
constexpr std::string_view table_name = "table";
constexpr std::string_view directory_name = "slabs";

std::optional<std::uint32_t> number(std::string_view digits) {
    const auto value = decimal(digits);
    if (!value || *value > std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
    return static_cast<std::uint32_t>(*value);
}

bool is_id(std::string_view text) {
    return text.size() == id_digits &&
           text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

std::string contents_id(const storage::InstanceId& instance) {
    return storage::instance_text(instance).substr(0, id_digits);
}

std::string contents_name(std::string_view id, const ContentsPart& part) {
    switch (part.kind) {
        case ContentsPart::Kind::directory:
            return fmt::format("{}{}/{}", own_prefix, id, directory_name);
        case ContentsPart::Kind::slab:
            return fmt::format("{}{}/{}/{}", own_prefix, id, part.device, part.slab);
        case ContentsPart::Kind::table:
            break;
    }
    return fmt::format("{}{}/{}{}{}", own_prefix, id, table_name, part.clone.empty() ? "" : "/",
                       part.clone);
}

std::optional<ContentsName> parse_contents_name(std::string_view name) {
    if (!name.starts_with(own_prefix)) return std::nullopt;
    name.remove_prefix(own_prefix.size());
    const std::size_t slash = name.find('/');
    if (slash == std::string_view::npos || !is_id(name.substr(0, slash))) return std::nullopt;
    ContentsName parsed{.id = std::string(name.substr(0, slash)), .part = {}};
    name.remove_prefix(slash + 1);
    if (name == table_name) return parsed;
    if (name == directory_name) {
        parsed.part.kind = ContentsPart::Kind::directory;
        return parsed;
    }
    const std::size_t second = name.find('/');
    if (second == std::string_view::npos) return std::nullopt;
    const std::string_view before = name.substr(0, second);
    const std::string_view after = name.substr(second + 1);
    if (before == table_name) {
        if (!is_id(after)) return std::nullopt;
        parsed.part.clone = after;
        return parsed;
    }
    const auto device = number(before);
    const auto slab = number(after);
    if (!device || !slab) return std::nullopt;
    parsed.part = ContentsPart::slab_of(*device, *slab);
    return parsed;
}

}  // namespace gpunbd::server
