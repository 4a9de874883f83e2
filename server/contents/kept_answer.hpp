// What `gpunbd kept` asks of a server, and what it is told, as text: the way that it takes is
// somebody else's.
#pragma once

#include <string>
#include <string_view>

#include "server/contents/kept_contents.hpp"

namespace gpunbd::server {

struct KeptAnswer {
    std::string text;      // a JSON object: {"kept": [...]}, {"dropped": N} or {"error": "..."}
    bool dropped = false;  // an export may be without contents now
};

inline constexpr std::string_view kept_list_request = "list";
inline constexpr std::string_view kept_drop_request = "drop ";  // and a name

KeptAnswer answer_about_kept(KeptContents& contents, std::string_view request);

}  // namespace gpunbd::server
