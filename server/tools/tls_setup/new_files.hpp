// Files that appear in a folder together, or not at all.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace gpunbd::server {

// They are written beside their place, and moved there when all is well; what is there already is
// never replaced unless that is asked for. What is thrown is std::runtime_error, for people.
class NewFiles {
 public:
    // `folder` is made, with mode 0700, if it is not there; its parent has to be.
    explicit NewFiles(std::string folder);
    ~NewFiles();
    NewFiles(const NewFiles&) = delete;
    NewFiles& operator=(const NewFiles&) = delete;

    // `path` within the folder; folders in it are made.
    void add(const std::string& path, std::string_view content, mode_t mode);
    // The one that may be there, and is replaced.
    void replace(const std::string& path, std::string_view content, mode_t mode);
    // All of them are there, or none is, and it throws.
    void publish();

 private:
    struct File {
        std::string path;
        bool replaces = false;
    };

    void write(const std::string& path, std::string_view content, mode_t mode);
    void make_folders(const std::string& root, const std::string& path,
                      std::vector<std::string>* made);
    void move_there(const File& file);
    std::string staged(const std::string& path) const { return staging_ + "/" + path; }
    std::string placed(const std::string& path) const { return folder_ + "/" + path; }

    const std::string folder_;
    bool existed_ = false;  // the folder was
    std::string staging_;   // a folder, gone at the end
    std::vector<File> files_;
};

}  // namespace gpunbd::server
