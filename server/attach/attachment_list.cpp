#include "server/attach/attachment_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <optional>
#include <vector>

#include "config/aligned_table.hpp"
#include "config/quote.hpp"
#include "config/size.hpp"
#include "server/attach/device.hpp"
#include "server/attach/holders.hpp"

namespace gpunbd::attach {
namespace {

namespace json = boost::json;

struct Attached {
    Device device;
    std::uint64_t process = 0;       // that has attached it, of whatever program
    std::optional<std::string> uri;  // where that is a `gpunbd attach` that still runs
    std::optional<std::string> instance;
    std::vector<std::string> uses;
};

std::vector<std::string> words_of_process(const std::string& root, std::uint64_t process) {
    std::ifstream file(fmt::format("{}proc/{}/cmdline", root, process), std::ios::binary);
    std::vector<std::string> words;
    for (std::string each; std::getline(file, each, '\0');) words.push_back(each);
    return words;
}

// Of the process that keeps the device: a number may be another process's by now.
std::optional<std::string> uri_of(const std::string& root, const Device& device,
                                  std::uint64_t process) {
    const auto words = words_of_process(root, process);
    const auto has = [&](std::string_view word) {
        return std::find(words.begin(), words.end(), word) != words.end();
    };
    if (!has("attach") || !has(device.path())) return std::nullopt;
    const auto uri = std::find_if(words.begin(), words.end(), [](const std::string& each) {
        return each.find("://") != std::string::npos;
    });
    return uri == words.end() ? std::nullopt : std::optional(*uri);
}

std::vector<std::string> uses_of(const Device& device) {
    std::vector<std::string> out = holders_of(device);
    for (const std::string& file : swaps_on(device)) out.push_back("is swapped to as " + file);
    return out;
}

std::vector<Attached> all_attached(const std::string& root) {
    std::vector<Attached> out;
    for (Device& device : attached_devices(root)) {
        const std::uint64_t process = device.number_in("pid").value_or(0);
        auto uri = uri_of(root, device, process);
        auto instance = device.attribute("backend");
        auto uses = uses_of(device);
        out.push_back(
            {std::move(device), process, std::move(uri), std::move(instance), std::move(uses)});
    }
    return out;
}

json::value or_null(const std::optional<std::string>& text) {
    return text ? json::value(*text) : json::value(nullptr);
}

}  // namespace

std::string attachment_table(const std::string& root) {
    const auto all = all_attached(root);
    if (all.empty()) return "nothing is attached\n";
    std::vector<std::vector<std::string>> rows{
        {"DEVICE", "SIZE", "PROCESS", "URI", "INSTANCE", "USE"}};
    for (const Attached& each : all) {
        const std::string& path = each.device.path();
        rows.push_back({path, config::human_size(each.device.size()),
                        each.uri ? std::to_string(each.process) : "-",
                        each.uri ? config::in_quotes(*each.uri) : "-", each.instance.value_or("-"),
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
        one["process"] = each.uri ? json::value(each.process) : json::value(nullptr);
        one["uri"] = or_null(each.uri);
        one["instance"] = or_null(each.instance);
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
