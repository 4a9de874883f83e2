#include "config/yaml_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <utility>
#include <variant>

#include "config/schema.hpp"
#include "config/unreadable.hpp"
#include "config/yaml_reader.hpp"
#include "config/yaml_tree.hpp"

namespace gpunbd::config {
namespace {

constexpr std::size_t max_file_size = 1 * MiB;

using Problems = std::vector<Problem>;

// Calls `read(report, root)` for the tree of a text. `key`, `empty`: the problem of an empty text.
template <class Options, class Read>
std::pair<Options, Problems> read_text(const std::string& text, const std::string& name,
                                       const char* key, const char* empty, const Read& read) {
    if (text.size() > max_file_size) {
        return {{}, {{name, 0, 0, "", "is larger than 1 MiB; name a configuration file"}}};
    }
    const auto parsed = parse_yaml(text, name);
    if (const auto* problem = std::get_if<Problem>(&parsed)) return {{}, {*problem}};
    const auto& tree = std::get<YamlTree>(parsed);

    Report report(name);
    Options options;
    if (tree.root == nullptr || tree.root->kind == YamlNode::Kind::null) {
        report.add({1, 1}, key, empty);
    } else {
        options = read(report, *tree.root);
    }
    if (report.empty()) return {std::move(options), {}};
    return {{}, report.take()};
}

Loaded load_checked(const std::string& text, const std::string& name) {
    auto [options, problems] =
        read_text<Options>(text, name, "exports",
                           "is missing, the file is empty; write for example exports: "
                           "[{name: vram, size: 8G}]",
                           read_options);
    return {std::move(options), std::move(problems)};
}

LoadedExport load_checked_export(const std::string& text, const std::string& name) {
    auto [options, problems] = read_text<ExportOptions>(
        text, name, "name", "is missing, the file is empty; write for example name: vram",
        read_export);
    return {std::move(options), std::move(problems)};
}

class File {
 public:
    explicit File(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
    ~File() {
        if (fd_ >= 0) close(fd_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    int fd() const { return fd_; }

 private:
    int fd_;
};

}  // namespace

std::optional<Options> load_or_report(const std::string& path) {
    Loaded loaded = load_file(path);
    for (const Problem& problem : loaded.problems) fmt::print(stderr, "{}\n", problem.text());
    if (!loaded.problems.empty()) return std::nullopt;
    return std::move(loaded.options);
}

namespace {

Problem unchecked(const std::string& name, const std::exception& error) {
    return {name, 0, 0, "", fmt::format("cannot be checked: {}", error.what())};
}

// The text of a file, or the problem with reading it.
std::variant<std::string, Problem> text_of(const std::string& path) {
    const auto refuse = [&path](int error) -> Problem {
        return {path, 0, 0, "", fmt::format("cannot be read: {}", why_unreadable(path, error))};
    };
    const File file(path);
    if (file.fd() < 0) return refuse(errno);
    // Reads one byte more than the limit, so that an endless file is refused.
    std::string text(max_file_size + 1, '\0');
    std::size_t length = 0;
    while (length < text.size()) {
        const ssize_t got = read(file.fd(), text.data() + length, text.size() - length);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return refuse(errno);
        if (got == 0) break;
        length += static_cast<std::size_t>(got);
    }
    text.resize(length);
    return text;
}

}  // namespace

Loaded load_text(const std::string& text, const std::string& name) {
    try {
        return load_checked(text, name);
    } catch (const std::exception& error) {
        return {{}, {unchecked(name, error)}};
    }
}

Loaded load_file(const std::string& path) {
    const auto text = text_of(path);
    if (const auto* problem = std::get_if<Problem>(&text)) return {{}, {*problem}};
    return load_text(std::get<std::string>(text), path);
}

LoadedExport load_export_text(const std::string& text, const std::string& name) {
    try {
        return load_checked_export(text, name);
    } catch (const std::exception& error) {
        return {{}, {unchecked(name, error)}};
    }
}

LoadedExport load_export_file(const std::string& path) {
    const auto text = text_of(path);
    if (const auto* problem = std::get_if<Problem>(&text)) return {{}, {*problem}};
    return load_export_text(std::get<std::string>(text), path);
}

}  // namespace gpunbd::config
