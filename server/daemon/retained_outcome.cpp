#include "server/daemon/retained_outcome.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "config/quote.hpp"

namespace gpunbd::server {

Kept list_kept(const RetainedContents& contents) {
    Kept out;
    for (const RetainedContents::Summary& each : contents.summaries()) {
        RetainedStatus& kept = out.contents.emplace_back();
        kept.name = each.name;
        kept.used = each.used;
        kept.state = each.state;
        if (each.instance.empty()) continue;  // its table is unreadable
        kept.size = each.size;
        kept.devices = each.devices;
        kept.made = each.made;
        kept.instance = each.instance;
    }
    return out;
}

Outcome drop_kept(RetainedContents& contents, const std::string& name) {
    if (contents.drop(name) != 0) {
        return Done{fmt::format("Kept contents {} are freed.", config::in_quotes(name))};
    }
    const auto all = contents.summaries();
    const bool there =
        std::any_of(all.begin(), all.end(), [&](const auto& each) { return each.name == name; });
    if (there) {
        return NotDone{fmt::format(
            "export {} uses them; remove the export, or its keep, from the configuration first",
            config::in_quotes(name))};
    }
    return NotDone{.why = "nothing is kept under the name " + config::in_quotes(name),
                   .unknown = true};
}

}  // namespace gpunbd::server
