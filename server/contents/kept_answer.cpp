#include "server/contents/kept_answer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "config/quote.hpp"

namespace gpunbd::server {

namespace {

std::string error_text(std::string_view what) {
    return boost::json::serialize(boost::json::object{{"error", what}});
}

boost::json::value to_json(const KeptContents::Summary& summary) {
    boost::json::object out{{"name", summary.name},  {"size", nullptr}, {"used", nullptr},
                            {"devices", nullptr},    {"made", nullptr}, {"instance", nullptr},
                            {"state", summary.state}};
    if (summary.allocated) out["used"] = *summary.allocated;
    if (summary.instance.empty()) return out;  // its table cannot be read
    out["size"] = summary.size;
    out["devices"] = summary.devices;
    out["made"] = summary.made;
    out["instance"] = summary.instance;
    return out;
}

std::string list_of(const KeptContents& contents) {
    boost::json::array all;
    for (const KeptContents::Summary& each : contents.summaries()) all.push_back(to_json(each));
    return boost::json::serialize(boost::json::object{{"kept", std::move(all)}});
}

KeptAnswer drop(KeptContents& contents, const std::string& name) {
    if (const std::size_t dropped = contents.drop(name); dropped != 0) {
        return {boost::json::serialize(boost::json::object{{"dropped", dropped}}), true};
    }
    const auto all = contents.summaries();
    const bool there =
        std::any_of(all.begin(), all.end(), [&](const auto& each) { return each.name == name; });
    if (!there) return {error_text("nothing is kept under the name " + config::in_quotes(name))};
    return {error_text(
        fmt::format("export {} has them; take it, or its keep, out of the configuration first",
                    config::in_quotes(name)))};
}

}  // namespace

KeptAnswer answer_about_kept(KeptContents& contents, std::string_view request) {
    if (request == kept_list_request) return {list_of(contents)};
    if (!request.starts_with(kept_drop_request)) return {error_text("not a request")};
    request.remove_prefix(kept_drop_request.size());
    return drop(contents, std::string(request));
}

}  // namespace gpunbd::server
