#include "config/yaml_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <utility>

#include "config/schema.hpp"
#include "config/unreadable.hpp"
#include "config/yaml_reader.hpp"
#include "config/yaml_tree.hpp"

namespace gpunbd::config {
namespace {

constexpr std::size_t max_file_size = 1 * MiB;

Loaded load_checked(const std::string& text, const std::string& name) {
    if (text.size() > max_file_size) {
        return {{}, {{name, 0, 0, "", "is larger than 1 MiB; name a configuration file"}}};
    }
    const auto parsed = parse_yaml(text, name);
    if (const auto* problem = std::get_if<Problem>(&parsed)) return {{}, {*problem}};
    const auto& tree = std::get<YamlTree>(parsed);

    Report report(name);
    Options options;
    if (tree.root == nullptr || tree.root->kind == YamlNode::Kind::null) {
        report.add({1, 1}, "exports",
                   "is missing, the file is empty; write for example exports: "
                   "[{name: vram, size: 8G}]");
    } else {
        options = read_options(report, *tree.root);
    }
    if (report.empty()) return {std::move(options), {}};
    return {{}, report.take()};
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

Loaded load_text(const std::string& text, const std::string& name) {
    try {
        return load_checked(text, name);
    } catch (const std::exception& error) {
        return {{}, {{name, 0, 0, "", fmt::format("cannot be checked: {}", error.what())}}};
    }
}

Loaded load_file(const std::string& path) {
    const auto refuse = [&path](int error) -> Loaded {
        return {{},
                {{path, 0, 0, "", fmt::format("cannot be read: {}", why_unreadable(path, error))}}};
    };
    const File file(path);
    if (file.fd() < 0) return refuse(errno);
    // Reads one byte more than the limit, so that load_text() refuses an endless file.
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
    return load_text(text, path);
}

}  // namespace gpunbd::config
