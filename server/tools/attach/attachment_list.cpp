#include "server/tools/attach/attachment_list.hpp"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <optional>
#include <vector>

#include "config/aligned_table.hpp"
#include "config/quote.hpp"
#include "config/size.hpp"
#include "server/tools/attach/device.hpp"
#include "server/tools/attach/holders.hpp"
#include "server/tools/attach/owner.hpp"

namespace gpunbd::attach {
namespace {

namespace json = boost::json;

struct Attached {
    Device device;
    std::optional<Owner> owner;
    std::optional<std::string> instance;
    std::vector<std::string> uses;
};

std::vector<std::string> uses_of(const Device& device) {
    std::vector<std::string> out;
    for (const Holder& each : holders_of(device)) out.push_back(each.what);
    for (const SwapArea& each : swaps_on(device)) out.push_back("is swapped to as " + each.file);
    return out;
}

std::vector<Attached> all_attached(const std::string& root) {
    std::vector<Attached> out;
    for (Device& device : attached_devices(root)) {
        auto owner = owner_of(device);
        auto instance = device.attribute("backend");
        auto uses = uses_of(device);
        out.push_back({std::move(device), std::move(owner), std::move(instance), std::move(uses)});
    }
    return out;
}

}  // namespace

std::string attachment_table(const std::string& root) {
    const auto all = all_attached(root);
    if (all.empty()) return "no device is attached\n";
    std::vector<std::vector<std::string>> rows{
        {"DEVICE", "SIZE", "PROCESS", "URI", "INSTANCE", "USE"}};
    for (const Attached& each : all) {
        const std::string& path = each.device.path();
        rows.push_back({path, config::human_size(each.device.size()),
                        each.owner ? std::to_string(each.owner->process) : "-",
                        each.owner ? config::in_quotes(each.owner->uri) : "-",
                        each.instance.value_or("-"),
                        each.uses.empty() ? "-" : fmt::format("{}", fmt::join(each.uses, ", "))});
    }
    return config::aligned_table(rows);
}

std::string attachment_json(const std::string& root) {
    json::array list;
    for (const Attached& each : all_attached(root)) {
        json::object one;
        one["device"] = each.device.path();
        one["size"] = each.device.size();
        one["process"] = each.owner ? json::value(each.owner->process) : json::value();
        one["uri"] = each.owner ? json::value(each.owner->uri) : json::value();
        one["instance"] = each.instance ? json::value(*each.instance) : json::value();
        json::array uses;
        for (const std::string& use : each.uses) uses.emplace_back(use);
        one["uses"] = std::move(uses);
        list.push_back(std::move(one));
    }
    json::object out;
    out["attached"] = std::move(list);
    return json::serialize(out) + '\n';
}

}  // namespace gpunbd::attach
