#include "server/handover/origin_comments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace gpunbd::server {

namespace {

constexpr std::string_view created_comment = "# created: ";
constexpr std::string_view made_by_comment = "# made_by: ";
constexpr std::string_view client_id_comment = "# client_id: ";
constexpr std::string_view peer_comment = "# peer: ";
constexpr std::string_view renamed_contents_comment = "# renamed_contents: ";

}  // namespace

std::string origin_comments(const config::Origin& origin) {
    std::string out;
    if (origin.created != 0) out = fmt::format("{}{}\n", created_comment, origin.created);
    if (!origin.renamed_contents.empty()) {
        out += fmt::format("{}{}\n", renamed_contents_comment, origin.renamed_contents);
    }
    if (origin.made_by.empty()) return out;
    return out + fmt::format("{}{}\n{}{}\n{}{}\n", made_by_comment, origin.made_by,
                             client_id_comment, static_cast<int>(origin.client_id), peer_comment,
                             origin.peer);
}

config::Origin origin_in(std::string_view text) {
    config::Origin origin{.run_time = true};
    while (text.starts_with('#')) {
        const std::string_view line = text.substr(0, text.find('\n'));
        const auto value_of = [line](std::string_view comment) -> std::string {
            if (!line.starts_with(comment)) return {};
            return std::string(line.substr(comment.size()));
        };
        if (const std::string time = value_of(created_comment); !time.empty()) {
            std::from_chars(time.data(), time.data() + time.size(), origin.created);
        }
        if (std::string name = value_of(made_by_comment); !name.empty()) origin.made_by = name;
        if (std::string peer = value_of(peer_comment); !peer.empty()) origin.peer = peer;
        if (std::string id = value_of(renamed_contents_comment); !id.empty()) {
            origin.renamed_contents = id;
        }
        for (const auto id :
             {config::ClientId::tls_name, config::ClientId::address, config::ClientId::machine}) {
            if (value_of(client_id_comment) == std::to_string(static_cast<int>(id))) {
                origin.client_id = id;
            }
        }
        text.remove_prefix(std::min(line.size() + 1, text.size()));
    }
    return origin;
}

}  // namespace gpunbd::server
